// Preloaded by `--import block-main-loop.mjs?2000,60000`: each SIGUSR2 blocks the main loop of the
// program for the next duration, milliseconds.
import { isMainThread } from 'node:worker_threads';

if (isMainThread) {
  const durations = new URL(import.meta.url).search.slice(1).split(',').map(Number);
  process.on('SIGUSR2', () => {
    const until = Date.now() + (durations.shift() ?? 0);
    while (Date.now() < until);
  });
}
