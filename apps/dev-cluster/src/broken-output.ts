import { spawn, type ChildProcess } from 'node:child_process';
import { fstatSync } from 'node:fs';

/**
 * Calls `callback` when standard output or standard error has lost its reader, for example because
 * `head` has ended. The call may be repeated. Writes that fail afterwards are ignored.
 *
 * A failed write shows that the reader is gone. Between writes only poll(2) can show that, which
 * Node does not offer. But `tail -f` of GNU coreutils polls its output every second and is ended by
 * SIGPIPE. Other implementations of `tail` refuse `--pid`; then only a failed write is detected.
 * @returns A function that ends the observation.
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
