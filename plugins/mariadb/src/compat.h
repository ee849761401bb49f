// Differences between the supported server versions. Every file of the handler includes this first.
#ifndef PERIGEE_COMPAT_H
#define PERIGEE_COMPAT_H

#define MYSQL_SERVER 1
#include <my_global.h>
#include <sql_class.h>
#include <handler.h>
#include <key.h>
#include <field.h>
#include <table.h>
#include <mysql/plugin.h>

#endif
