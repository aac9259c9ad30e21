// Loaded into a measured process by `--import`: the first SIGUSR2 begins a CPU profile, the next one
// writes it to the directory in BENCH_PROFILE_DIR, and so on. Node.js can only profile a whole
// process by a flag.
import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector';
import { join } from 'node:path';

/** Time between two samples, microseconds. */
const INTERVAL_US = 500;

const session = new Session();
session.connect();
session.post('Profiler.enable');
session.post('Profiler.setSamplingInterval', { interval: INTERVAL_US });
let written = 0;
let isRunning = false;
process.on('SIGUSR2', () => {
  isRunning = !isRunning;
  if (isRunning) return void session.post('Profiler.start');
  session.post('Profiler.stop', (reason, result) => {
    if (reason !== null) throw reason;
    written += 1;
    const file = join(process.env.BENCH_PROFILE_DIR ?? '.', `${written}.cpuprofile`);
    writeFileSync(file, JSON.stringify(result.profile));
    process.stderr.write(`{"message":"profile written","file":"${file}"}\n`);
  });
});
