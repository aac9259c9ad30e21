import { recorded } from '../recorded-group.js';

/** Recorded on kernel 6.18: each v1 controller mounted separately, and v2 without controllers. */
export const HYBRID_6_18 = recorded(
  { name: 'hybrid, kernel 6.18', layout: 'hybrid', pid: 19758 },
  `== /proc/self/mountinfo
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
== /proc/self/cgroup
9:name=systemd:/
8:pids:/
7:blkio:/
6:freezer:/
5:devices:/
4:memory:/agent
3:cpuset:/
2:cpuacct:/
1:cpu:/
0::/
== /proc/19758/cgroup
9:name=systemd:/
8:pids:/cloudless-recorded
7:blkio:/cloudless-recorded
6:freezer:/
5:devices:/
4:memory:/cloudless-recorded
3:cpuset:/
2:cpuacct:/cloudless-recorded
1:cpu:/cloudless-recorded
0::/cloudless-recorded
== /proc/19758/stat
19758 (sh) R 19741 19726 13774 0 -1 4194560 303 1651 0 1 91 6 1 0 30 10 1 0 1664696 2654208 399 18446744073709551615 94897807355904 94897807432633 140723725260528 0 0 0 0 6 65536 0 0 0 17 0 0 0 0 0 0 94897807461936 94897807467072 94898817675264 140723725261534 140723725261553 140723725261553 140723725262828 0
== /proc/19758/net/dev
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  eth0:     516       6    0    0    0     0          0         0      516       6    0    0    0     0       0          0
== /sys/fs/cgroup/cpu/cloudless-recorded/cpu.stat
nr_periods 46
nr_throttled 44
throttled_time 3019519984
nr_bursts 0
burst_time 0
== /sys/fs/cgroup/cpu/cloudless-recorded/cpu.cfs_quota_us
20000
== /sys/fs/cgroup/cpu/cloudless-recorded/cpu.cfs_period_us
100000
== /sys/fs/cgroup/cpuacct/cloudless-recorded/cpuacct.usage
920294183
== /sys/fs/cgroup/cpuacct/cloudless-recorded/cpuacct.usage_user
947972108
== /sys/fs/cgroup/cpuacct/cloudless-recorded/cpuacct.usage_sys
32000000
== /sys/fs/cgroup/memory/cloudless-recorded/memory.usage_in_bytes
26886144
== /sys/fs/cgroup/memory/cloudless-recorded/memory.stat
cache 26312704
rss 151552
rss_huge 0
shmem 0
mapped_file 0
dirty 8192
writeback 0
workingset_refault_anon 0
workingset_refault_file 25
swap 0
swapcached 0
pgpgin 2511
pgpgout 1264
pgfault 1773
pgmajfault 1
inactive_anon 147456
active_anon 4096
inactive_file 26210304
active_file 102400
unevictable 0
hierarchical_memory_limit 67108864
hierarchical_memsw_limit 9223372036854771712
total_cache 26312704
total_rss 151552
total_rss_huge 0
total_shmem 0
total_mapped_file 0
total_dirty 8192
total_writeback 0
total_workingset_refault_anon 0
total_workingset_refault_file 25
total_swap 0
total_swapcached 0
total_pgpgin 2511
total_pgpgout 1264
total_pgfault 1773
total_pgmajfault 1
total_inactive_anon 147456
total_active_anon 4096
total_inactive_file 26210304
total_active_file 102400
total_unevictable 0
== /sys/fs/cgroup/memory/cloudless-recorded/memory.limit_in_bytes
67108864
== /sys/fs/cgroup/memory/cloudless-recorded/memory.max_usage_in_bytes
28143616
== /sys/fs/cgroup/memory/cloudless-recorded/memory.memsw.usage_in_bytes
26886144
== /sys/fs/cgroup/memory/cloudless-recorded/memory.memsw.limit_in_bytes
9223372036854771712
== /sys/fs/cgroup/blkio/cloudless-recorded/blkio.throttle.io_service_bytes_recursive
254:0 Read 50429952
254:0 Write 26230784
254:0 Sync 76660736
254:0 Async 0
254:0 Discard 0
254:0 Total 76660736
Total 76660736
== /sys/fs/cgroup/blkio/cloudless-recorded/blkio.throttle.io_serviced_recursive
254:0 Read 52
254:0 Write 54
254:0 Sync 106
254:0 Async 0
254:0 Discard 0
254:0 Total 106
Total 106
== /sys/fs/cgroup/blkio/cloudless-recorded/blkio.throttle.io_service_bytes
254:0 Read 50429952
254:0 Write 26230784
254:0 Sync 76660736
254:0 Async 0
254:0 Discard 0
254:0 Total 76660736
Total 76660736
== /sys/fs/cgroup/blkio/cloudless-recorded/blkio.throttle.io_serviced
254:0 Read 52
254:0 Write 54
254:0 Sync 106
254:0 Async 0
254:0 Discard 0
254:0 Total 106
Total 106
== /sys/fs/cgroup/pids/cloudless-recorded/pids.current
2
== /sys/fs/cgroup/pids/cloudless-recorded/pids.max
100
== /sys/fs/cgroup/unified/cloudless-recorded/cpu.stat
usage_usec 1002767
user_usec 932200
system_usec 70566
nice_usec 1003972
== /sys/fs/cgroup/unified/cloudless-recorded/cpu.pressure
some avg10=14.99 avg60=2.90 avg300=0.61 total=2625545
full avg10=14.99 avg60=2.90 avg300=0.61 total=2623231
== /sys/fs/cgroup/unified/cloudless-recorded/memory.pressure
some avg10=0.00 avg60=0.00 avg300=0.00 total=0
full avg10=0.00 avg60=0.00 avg300=0.00 total=0
== /sys/fs/cgroup/unified/cloudless-recorded/io.pressure
some avg10=0.00 avg60=0.00 avg300=0.00 total=19494
full avg10=0.00 avg60=0.00 avg300=0.00 total=19467
`,
);
