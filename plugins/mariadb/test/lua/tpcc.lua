-- A workload like TPC-C, not an official one: the nine tables and five transactions with their mix, scaled down, without
-- think times. Commands: schema, load (parallel), run. The runner tpcc.py merges what each thread prints at its end.

local ffi = require("ffi")
ffi.cdef[[
struct tpcc_time { long seconds; long nanoseconds; };
int clock_gettime(int clock, struct tpcc_time *time);
]]

sysbench.cmdline.options = {
   warehouses = {"Number of warehouses", 4},
   items = {"Number of items, and of stock rows of each warehouse", 10000},
   customers = {"Customers, and orders at first, of each of the ten districts of a warehouse", 300},
   engine = {"Storage engine", "InnoDB"},
}

local DISTRICTS = 10
-- Percentages of the mix; the rest is stock_level.
local MIX = {{"new_order", 45}, {"payment", 43}, {"order_status", 4}, {"delivery", 4}, {"stock_level", 4}}
local SYLLABLES = {"ba", "co", "di", "fu", "ga", "ho", "ju", "ki", "lo", "mu"}

local random = sysbench.rand.uniform
local connection
local counts, latencies

-- ---- values ----

local function text(least, most)
   return sysbench.rand.string(string.rep("@", random(least, most)))
end

local function digits(count)
   return sysbench.rand.string(string.rep("#", count))
end

local function last_name(number)
   return SYLLABLES[math.floor(number / 100) % 10 + 1] .. SYLLABLES[math.floor(number / 10) % 10 + 1] .. SYLLABLES[number % 10 + 1]
end

local function number_of_names()
   return math.max(1, math.floor(sysbench.opt.customers / 3))
end

-- Non-uniform: values with many bits of `mask` are more frequent.
local function skewed(mask, first, last)
   return (bit.bor(random(0, mask), random(first, last)) + 123) % (last - first + 1) + first
end

local function customer_id()
   return skewed(1023, 1, sysbench.opt.customers)
end

local function item_id()
   return skewed(8191, 1, sysbench.opt.items)
end

-- ---- schema and load ----

local TABLES = {
   warehouse = [[w_id INT NOT NULL, w_name VARCHAR(10), w_street VARCHAR(40), w_city VARCHAR(20), w_state CHAR(2), w_zip CHAR(9),
      w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(14,2) NOT NULL, PRIMARY KEY (w_id)]],
   district = [[d_id INT NOT NULL, d_w_id INT NOT NULL, d_name VARCHAR(10), d_street VARCHAR(40), d_city VARCHAR(20), d_state CHAR(2),
      d_zip CHAR(9), d_tax DECIMAL(4,4) NOT NULL, d_ytd DECIMAL(14,2) NOT NULL, d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id)]],
   customer = [[c_id INT NOT NULL, c_d_id INT NOT NULL, c_w_id INT NOT NULL, c_first VARCHAR(16) NOT NULL, c_middle CHAR(2),
      c_last VARCHAR(16) NOT NULL, c_street VARCHAR(40), c_city VARCHAR(20), c_state CHAR(2), c_zip CHAR(9), c_phone CHAR(16),
      c_since DATETIME, c_credit CHAR(2) NOT NULL, c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4) NOT NULL,
      c_balance DECIMAL(14,2) NOT NULL, c_ytd_payment DECIMAL(14,2) NOT NULL, c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL,
      c_data VARCHAR(500) NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id), KEY by_name (c_w_id, c_d_id, c_last, c_first)]],
   history = [[h_c_id INT, h_c_d_id INT, h_c_w_id INT, h_d_id INT, h_w_id INT, h_date DATETIME, h_amount DECIMAL(6,2) NOT NULL,
      h_data VARCHAR(24)]],
   new_order = [[no_o_id INT NOT NULL, no_d_id INT NOT NULL, no_w_id INT NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id)]],
   orders = [[o_id INT NOT NULL, o_d_id INT NOT NULL, o_w_id INT NOT NULL, o_c_id INT NOT NULL, o_entry_d DATETIME, o_carrier_id INT,
      o_ol_cnt INT NOT NULL, o_all_local INT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id),
      KEY by_customer (o_w_id, o_d_id, o_c_id, o_id)]],
   order_line = [[ol_o_id INT NOT NULL, ol_d_id INT NOT NULL, ol_w_id INT NOT NULL, ol_number INT NOT NULL, ol_i_id INT NOT NULL,
      ol_supply_w_id INT NOT NULL, ol_delivery_d DATETIME, ol_quantity INT NOT NULL, ol_amount DECIMAL(8,2) NOT NULL,
      ol_dist_info CHAR(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)]],
   item = [[i_id INT NOT NULL, i_im_id INT, i_name VARCHAR(24), i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50), PRIMARY KEY (i_id)]],
   stock = [[s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity INT NOT NULL, s_dist_01 CHAR(24), s_dist_02 CHAR(24), s_dist_03 CHAR(24),
      s_dist_04 CHAR(24), s_dist_05 CHAR(24), s_dist_06 CHAR(24), s_dist_07 CHAR(24), s_dist_08 CHAR(24), s_dist_09 CHAR(24),
      s_dist_10 CHAR(24), s_ytd INT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL, s_data VARCHAR(50),
      PRIMARY KEY (s_w_id, s_i_id)]],
}

-- Collects rows and inserts them 200 at a time.
local Batch = {}
Batch.__index = Batch

local function batch(con, table_name)
   return setmetatable({con = con, table_name = table_name, rows = {}}, Batch)
end

function Batch:add(format, ...)
   self.rows[#self.rows + 1] = "(" .. string.format(format, ...) .. ")"
   if #self.rows == 200 then
      self:flush()
   end
end

function Batch:flush()
   if #self.rows > 0 then
      self.con:query("INSERT INTO " .. self.table_name .. " VALUES " .. table.concat(self.rows, ","))
      self.rows = {}
   end
end

local function create_schema()
   local con = sysbench.sql.driver():connect()
   for name, columns in pairs(TABLES) do
      -- A binary collation: MyRocks stores no others in an index without a loss.
      con:query("CREATE TABLE " .. name .. " (" .. columns .. ") ENGINE=" .. sysbench.opt.engine .. " CHARACTER SET latin1 COLLATE latin1_bin")
   end
   local items = batch(con, "item")
   for i = 1, sysbench.opt.items do
      items:add("%d, %d, '%s', %.2f, '%s'", i, random(1, 10000), text(14, 24), random(100, 10000) / 100, text(26, 50))
   end
   items:flush()
   con:disconnect()
end

local function load_stock(con, w)
   local stock = batch(con, "stock")
   for i = 1, sysbench.opt.items do
      local districts = {}
      for d = 1, DISTRICTS do
         districts[d] = "'" .. text(24, 24) .. "'"
      end
      stock:add("%d, %d, %d, %s, 0, 0, 0, '%s'", i, w, random(10, 100), table.concat(districts, ", "), text(26, 50))
   end
   stock:flush()
end

local function load_customers(con, w, d)
   local customers, history = batch(con, "customer"), batch(con, "history")
   for c = 1, sysbench.opt.customers do
      customers:add("%d, %d, %d, '%s', 'OE', '%s', '%s', '%s', '%s', '%s', '%s', NOW(), '%s', 50000, %.4f, -10, 10, 1, 0, '%s'",
                    c, d, w, text(8, 16), last_name((c - 1) % number_of_names()), text(10, 20), text(10, 20), text(2, 2), digits(9),
                    digits(16), random(1, 10) == 1 and "BC" or "GC", random(0, 5000) / 10000, text(300, 500))
      history:add("%d, %d, %d, %d, %d, NOW(), 10, '%s'", c, d, w, d, w, text(12, 24))
   end
   customers:flush()
   history:flush()
end

local function load_orders(con, w, d)
   local count = sysbench.opt.customers
   local customer_of = {}
   for c = 1, count do
      customer_of[c] = c
   end
   for c = count, 2, -1 do
      local other = random(1, c)
      customer_of[c], customer_of[other] = customer_of[other], customer_of[c]
   end
   local orders, lines, waiting = batch(con, "orders"), batch(con, "order_line"), batch(con, "new_order")
   for o = 1, count do
      -- The newest 30 % are not delivered.
      local delivered = o <= count * 0.7
      local line_count = random(5, 15)
      orders:add("%d, %d, %d, %d, NOW(), %s, %d, 1", o, d, w, customer_of[o], delivered and tostring(random(1, 10)) or "NULL", line_count)
      for number = 1, line_count do
         lines:add("%d, %d, %d, %d, %d, %d, %s, 5, %.2f, '%s'", o, d, w, number, random(1, sysbench.opt.items), w,
                   delivered and "NOW()" or "NULL", delivered and 0 or random(1, 999999) / 100, text(24, 24))
      end
      if not delivered then
         waiting:add("%d, %d, %d", o, d, w)
      end
   end
   orders:flush()
   lines:flush()
   waiting:flush()
end

local function load_warehouses()
   local con = sysbench.sql.driver():connect()
   for w = sysbench.tid + 1, sysbench.opt.warehouses, sysbench.opt.threads do
      -- Each customer has paid 10 once.
      local paid = sysbench.opt.customers * 10
      con:query(string.format("INSERT INTO warehouse VALUES (%d, '%s', '%s', '%s', '%s', '%s', %.4f, %d)", w, text(6, 10), text(10, 20),
                              text(10, 20), text(2, 2), digits(9), random(0, 2000) / 10000, paid * DISTRICTS))
      load_stock(con, w)
      for d = 1, DISTRICTS do
         con:query(string.format("INSERT INTO district VALUES (%d, %d, '%s', '%s', '%s', '%s', '%s', %.4f, %d, %d)", d, w, text(6, 10),
                                 text(10, 20), text(10, 20), text(2, 2), digits(9), random(0, 2000) / 10000, paid, sysbench.opt.customers + 1))
         load_customers(con, w, d)
         load_orders(con, w, d)
      end
   end
   con:disconnect()
end

sysbench.cmdline.commands = {
   schema = {create_schema},
   load = {load_warehouses, sysbench.cmdline.PARALLEL_COMMAND},
}

-- ---- transactions ----

local function execute(format, ...)
   return connection:query(string.format(format, ...))
end

-- The columns of one row that must exist.
local function row(format, ...)
   local statement = string.format(format, ...)
   local result = connection:query(statement)
   local values = result.nrows > 0 and result:fetch_row() or nil
   if not values then
      error("no row: " .. statement)
   end
   return unpack(values, 1, result.nfields)
end

local function rows(format, ...)
   local result = execute(format, ...)
   local all = {}
   for index = 1, tonumber(result.nrows) do
      all[index] = result:fetch_row()
   end
   return all
end

-- By last name for 60 %: the one in the middle of those with the name, sorted by first name.
local function choose_customer(w, d)
   if random(1, 100) > 60 then
      return {w = w, d = d, id = customer_id()}
   end
   return {w = w, d = d, name = last_name(skewed(255, 0, number_of_names() - 1))}
end

local function find_customer(customer)
   if customer.id then
      return customer.id
   end
   local found = rows("SELECT c_id FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = '%s' ORDER BY c_first",
                      customer.w, customer.d, customer.name)
   if #found == 0 then
      error("no customer has the name " .. customer.name)
   end
   return tonumber(found[math.floor((#found + 1) / 2)][1])
end

local function other_warehouse(w)
   if sysbench.opt.warehouses == 1 then
      return w
   end
   local other = random(1, sysbench.opt.warehouses - 1)
   return other < w and other or other + 1
end

-- Each choose function returns the inputs of a transaction, which a repetition uses again.
local choose, run = {}, {}

function choose.new_order(w)
   local input = {w = w, d = random(1, DISTRICTS), c = customer_id(), lines = {}, all_local = 1}
   for number = 1, random(5, 15) do
      local supply = random(1, 100) == 1 and other_warehouse(w) or w
      if supply ~= w then
         input.all_local = 0
      end
      input.lines[number] = {item = item_id(), supply = supply, quantity = random(1, 10)}
   end
   if random(1, 100) == 1 then
      input.lines[#input.lines].item = sysbench.opt.items + 1
   end
   return input
end

function run.new_order(input)
   local w, d, c = input.w, input.d, input.c
   local discount, warehouse_tax = row("SELECT c_discount, w_tax FROM customer, warehouse WHERE w_id = %d AND c_w_id = %d AND c_d_id = %d AND c_id = %d",
                                       w, w, d, c)
   local next_id, district_tax = row("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %d AND d_id = %d FOR UPDATE", w, d)
   execute("UPDATE district SET d_next_o_id = %d WHERE d_w_id = %d AND d_id = %d", next_id + 1, w, d)
   execute("INSERT INTO orders VALUES (%d, %d, %d, %d, NOW(), NULL, %d, %d)", next_id, d, w, c, #input.lines, input.all_local)
   execute("INSERT INTO new_order VALUES (%d, %d, %d)", next_id, d, w)
   local total = 0
   for number, line in ipairs(input.lines) do
      local found = execute("SELECT i_price, i_name, i_data FROM item WHERE i_id = %d", line.item)
      if found.nrows == 0 then
         execute("ROLLBACK")
         return "rolled_back"
      end
      local price = tonumber(found:fetch_row()[1])
      local quantity, info = row("SELECT s_quantity, s_dist_%02d, s_data FROM stock WHERE s_w_id = %d AND s_i_id = %d FOR UPDATE", d, line.supply, line.item)
      quantity = tonumber(quantity) - line.quantity
      if quantity < 10 then
         quantity = quantity + 91
      end
      execute("UPDATE stock SET s_quantity = %d, s_ytd = s_ytd + %d, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + %d WHERE s_w_id = %d AND s_i_id = %d",
              quantity, line.quantity, line.supply == w and 0 or 1, line.supply, line.item)
      local amount = price * line.quantity
      total = total + amount
      execute("INSERT INTO order_line VALUES (%d, %d, %d, %d, %d, %d, NULL, %d, %.2f, '%s')", next_id, d, w, number, line.item, line.supply,
              line.quantity, amount, info)
   end
   input.total = total * (1 - discount) * (1 + warehouse_tax + district_tax)
end

function choose.payment(w)
   local d = random(1, DISTRICTS)
   local home = random(1, 100) <= 85
   return {w = w, d = d, amount = random(100, 500000) / 100,
           customer = choose_customer(home and w or other_warehouse(w), home and d or random(1, DISTRICTS))}
end

function run.payment(input)
   local w, d, customer = input.w, input.d, input.customer
   execute("UPDATE warehouse SET w_ytd = w_ytd + %.2f WHERE w_id = %d", input.amount, w)
   local warehouse_name = row("SELECT w_name, w_street, w_city, w_state, w_zip FROM warehouse WHERE w_id = %d", w)
   execute("UPDATE district SET d_ytd = d_ytd + %.2f WHERE d_w_id = %d AND d_id = %d", input.amount, w, d)
   local district_name = row("SELECT d_name, d_street, d_city, d_state, d_zip FROM district WHERE d_w_id = %d AND d_id = %d", w, d)
   local c = find_customer(customer)
   local credit, data = row("SELECT c_credit, c_data, c_balance, c_first, c_last, c_discount FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d FOR UPDATE",
                            customer.w, customer.d, c)
   local more = ""
   if credit == "BC" then
      local line = string.format("%d %d %d %d %d %.2f|", c, customer.d, customer.w, d, w, input.amount)
      more = ", c_data = '" .. string.sub(line .. data, 1, 500) .. "'"
   end
   execute("UPDATE customer SET c_balance = c_balance - %.2f, c_ytd_payment = c_ytd_payment + %.2f, c_payment_cnt = c_payment_cnt + 1%s WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d",
           input.amount, input.amount, more, customer.w, customer.d, c)
   execute("INSERT INTO history VALUES (%d, %d, %d, %d, %d, NOW(), %.2f, '%s')", c, customer.d, customer.w, d, w, input.amount,
           warehouse_name .. "    " .. district_name)
end

function choose.order_status(w)
   return {customer = choose_customer(w, random(1, DISTRICTS))}
end

function run.order_status(input)
   local customer = input.customer
   local c = find_customer(customer)
   row("SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", customer.w, customer.d, c)
   local order = rows("SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = %d AND o_d_id = %d AND o_c_id = %d ORDER BY o_id DESC LIMIT 1",
                      customer.w, customer.d, c)[1]
   if order then
      local lines = rows("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d",
                         customer.w, customer.d, order[1])
      if #lines < 5 then
         error(string.format("order %d of district %d of warehouse %d has %d lines", order[1], customer.d, customer.w, #lines))
      end
   end
end

function choose.delivery(w)
   return {w = w, carrier = random(1, 10)}
end

-- The oldest order of each district: reads at the end of an index whose entries are deleted again and again.
function run.delivery(input)
   local w = input.w
   for d = 1, DISTRICTS do
      local oldest = rows("SELECT no_o_id FROM new_order WHERE no_w_id = %d AND no_d_id = %d ORDER BY no_o_id LIMIT 1 FOR UPDATE", w, d)[1]
      if oldest then
         local o = oldest[1]
         execute("DELETE FROM new_order WHERE no_w_id = %d AND no_d_id = %d AND no_o_id = %d", w, d, o)
         local c = row("SELECT o_c_id FROM orders WHERE o_w_id = %d AND o_d_id = %d AND o_id = %d", w, d, o)
         execute("UPDATE orders SET o_carrier_id = %d WHERE o_w_id = %d AND o_d_id = %d AND o_id = %d", input.carrier, w, d, o)
         execute("UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", w, d, o)
         local amount = row("SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id = %d", w, d, o)
         execute("UPDATE customer SET c_balance = c_balance + %s, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d",
                 amount, w, d, c)
      end
   end
end

function choose.stock_level(w)
   return {w = w, d = random(1, DISTRICTS), threshold = random(10, 20)}
end

function run.stock_level(input)
   local next_id = row("SELECT d_next_o_id FROM district WHERE d_w_id = %d AND d_id = %d", input.w, input.d)
   row("SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id >= %d AND ol_o_id < %d AND s_w_id = %d AND s_i_id = ol_i_id AND s_quantity < %d",
       input.w, input.d, next_id - 20, next_id, input.w, input.threshold)
end

-- ---- the run ----

local function microseconds()
   local time = ffi.new("struct tpcc_time")
   ffi.C.clock_gettime(1, time)
   return tonumber(time.seconds) * 1e6 + tonumber(time.nanoseconds) / 1e3
end

local function count(name)
   counts[name] = (counts[name] or 0) + 1
end

function thread_init()
   connection = sysbench.sql.driver():connect()
   counts, latencies = {}, {}
   for _, kind in ipairs(MIX) do
      latencies[kind[1]] = {}
   end
end

local function choose_kind()
   local percent = random(1, 100)
   for _, kind in ipairs(MIX) do
      percent = percent - kind[2]
      if percent <= 0 then
         return kind[1]
      end
   end
end

function event()
   local kind = choose_kind()
   -- Each thread works for one warehouse, as a terminal does.
   local input = choose[kind](sysbench.tid % sysbench.opt.warehouses + 1)
   local start = microseconds()
   while true do
      local done, result = pcall(function()
         connection:query("BEGIN")
         local outcome = run[kind](input)
         if outcome ~= "rolled_back" then
            connection:query("COMMIT")
         end
         return outcome
      end)
      if done then
         count(result or kind)
         break
      end
      -- The runner lists lock wait timeouts, deadlocks and conflicts with --mysql-ignore-errors. A duplicate key is none of
      -- them but an error of the engine: the order number comes from a locked row.
      if type(result) ~= "table" or result.errcode ~= sysbench.error.RESTART_EVENT then
         error(result, 0)
      end
      count("error_" .. result.sql_errno)
      count("retried_" .. kind)
      connection:query("ROLLBACK")
   end
   -- Buckets of 5 %.
   local bucket = math.floor(math.log(math.max(1, microseconds() - start)) / math.log(1.05))
   latencies[kind][bucket] = (latencies[kind][bucket] or 0) + 1
end

function thread_done()
   local parts = {"TPCC"}
   for name, value in pairs(counts) do
      parts[#parts + 1] = name .. "=" .. value
   end
   for kind, buckets in pairs(latencies) do
      for bucket, value in pairs(buckets) do
         parts[#parts + 1] = "latency:" .. kind .. ":" .. bucket .. "=" .. value
      end
   end
   io.write(table.concat(parts, " ") .. "\n")
   connection:disconnect()
end
