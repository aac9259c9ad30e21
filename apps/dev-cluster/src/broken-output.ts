import { spawn, type ChildProcess } from 'node:child_process';
import { fstatSync } from 'node:fs';

/**
 * Runs `callback` once standard output or standard error has no reader any more. Failing writes are
 * ignored.
 *
 * A write detects that. Between writes only poll(2) does, which Node does not offer; but `tail -f`
 * of GNU coreutils checks every second whether its output still has a reader. Other implementations
 * of `tail` refuse `--pid`, and then only a write detects it.
 * @returns The function that ends the observation.
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
