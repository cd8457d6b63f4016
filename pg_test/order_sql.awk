# Puts the install script that cargo-pgrx prints into an order of its own: cargo-pgrx's differs from call to
# call. First what says "-- bootstrap", then what is no function, then the functions by name, last what says
# "-- finalize". An object that needs a later one belongs into the finalize file; CREATE EXTENSION tells.
# Line numbers go: where an item stands is no part of what it is.

/^\/\* <begin connected objects> \*\/$/ { block = ""; kind = key = "1 other"; inside = 1; is_sql = 0; next }
/^\/\* <\/end connected objects> \*\/$/ {
    inside = 0
    if (!is_sql) next # a note
    if (kind == "1 other") key = kind " " block
    # Sorted as they come in; there are some dozens.
    for (i = n++; i > 0 && keys[i - 1] > key; i--) { keys[i] = keys[i - 1]; blocks[i] = blocks[i - 1] }
    keys[i] = key
    blocks[i] = block
    next
}
inside {
    if ($0 ~ /^-- .*\.rs:[0-9]+$/) sub(/:[0-9]+$/, "")
    if ($0 == "-- bootstrap") kind = key = "0 bootstrap"
    if ($0 == "-- finalize") kind = key = "3 finalize"
    if (kind == "1 other" && $0 ~ /^CREATE +FUNCTION /) { kind = "2 function"; key = kind " " $0 }
    if ($0 ~ /^[A-Z]/ && $0 !~ /^(This file|The ordering)/) is_sql = 1
    sub(/[ \t]+$/, "")
    block = block $0 "\n"
}
END {
    print "-- Made by `make sql` from the sources; not to be edited by hand."
    for (i = 0; i < n; i++) printf "\n%s", blocks[i]
}
