// Runs the seeds that its parent sends, one after the other, and tells what became of each.
import { createHash } from 'node:crypto';
import { runSeed } from './run-seed.js';
import type { SeedReport } from './run-seeds.js';

/** Lines of a failed seed that are shown. */
const SHOWN_LINES = 40;

process.on('message', (seed: number) => {
  const began = process.cpuUsage();
  void runSeed(seed).then(({ violations, trace, convergedMs, commits, acknowledged }) => {
    const { user, system } = process.cpuUsage(began);
    const report: SeedReport = {
      seed,
      violations,
      digest: createHash('sha256').update(trace.join('\n')).digest('hex'),
      trace: violations.length === 0 ? [] : trace.slice(-SHOWN_LINES),
      ...(convergedMs === undefined ? {} : { convergedMs }),
      commits,
      acknowledged,
      cpuMs: (user + system) / 1_000,
    };
    process.send?.(report);
  });
});
