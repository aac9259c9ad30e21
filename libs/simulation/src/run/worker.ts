// Runs the seeds that the parent process sends, one after the other, and reports each result.
import { createHash } from 'node:crypto';
import { definedFields } from '@cloudless/base';
import { runSeed } from './run-seed.js';
import type { SeedReport } from './run-seeds.js';

/** Number of trace lines to show for a failed seed. */
const SHOWN_LINES = 40;

process.on('message', (seed: number) => {
  const usageAtStart = process.cpuUsage();
  void runSeed(seed).then(({ violations, trace, convergedMs, commits, acknowledged }) => {
    const { user, system } = process.cpuUsage(usageAtStart);
    const report: SeedReport = {
      seed,
      violations,
      digest: createHash('sha256').update(trace.join('\n')).digest('hex'),
      trace: violations.length === 0 ? [] : trace.slice(-SHOWN_LINES),
      ...definedFields({ convergedMs }),
      commits,
      acknowledged,
      cpuMs: (user + system) / 1_000,
    };
    process.send?.(report);
  });
});
