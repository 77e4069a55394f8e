"""`dualdiv plan`: what is counted, rates, time, memory and disk, and what is printed."""
