import { spawn, type ChildProcess } from 'node:child_process';
import { fstatSync } from 'node:fs';

/**
 * Calls back once nobody reads standard output or standard error any more. Writes that fail are
 * ignored.
 *
 * A write tells. Before the next one, only poll(2) does, which Node does not offer; `tail -f` of
 * GNU looks every second whether its output still has a reader. Any other `tail` refuses `--pid`,
 * and then only a write tells.
 * @returns To be called at the end.
 */
export function onBrokenOutput(callback: () => void): () => void {
  const watchers: ChildProcess[] = [];
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', callback);
    if (process.platform !== 'linux' || !isPipe(stream.fd)) continue;
    const watcher = spawn('tail', ['-f', `--pid=${process.pid}`, '/dev/null'], {
      stdio: ['ignore', stream.fd, 'ignore'],
    });
    watcher.on('error', () => undefined);
    watcher.once('exit', (_, signal) => (signal === 'SIGPIPE' ? callback() : undefined));
    watcher.unref();
    watchers.push(watcher);
  }
  return () => watchers.forEach((watcher) => watcher.kill());
}

function isPipe(fd: number): boolean {
  try {
    return fstatSync(fd).isFIFO();
  } catch {
    return false;
  }
}
