/* A tour of the C++ interface of Perigee:
 *
 *     c++ -std=c++17 tour.cpp $(pkg-config --cflags --libs perigee) -o tour && ./tour DIRECTORY
 */
#include <iostream>
#include <perigee.hpp>

int main(int argc, char **argv)
try {
    if (argc != 2) {
        std::cerr << "usage: " << argv[0] << " DIRECTORY\n";
        return 2;
    }
    perigee::Database db(argv[1], perigee::Options().set("memory_budget", "64 MiB"));
    perigee::Family tides = db.family_or_create("tides");

    perigee::Batch batch; // several writes, committed as one
    batch.put(tides, "06:12", "high");
    batch.put(tides, "12:31", "low");
    batch.put(tides, "18:40", "high");
    db.write(batch);

    if (auto tide = tides.get("12:31")) std::cout << "12:31 is " << *tide << '\n';
    for (auto [time, tide] : tides.iterate(perigee::Range("06:00", "13:00"))) std::cout << time << ' ' << tide << '\n';

    // Retried after a conflict with another transaction.
    db.transact([&](perigee::Transaction &txn) {
        long visits = std::stol(txn.get(tides, "visits").value_or("0"));
        txn.put(tides, "visits", std::to_string(visits + 1));
    });
    std::cout << "visits: " << *tides.get("visits") << '\n';
    db.close();
    return 0;
} catch (const perigee::Error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
