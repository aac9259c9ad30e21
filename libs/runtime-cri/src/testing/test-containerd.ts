import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sleep } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { SKIP_REASON } from './real-cri-machine.js';

/** Path of the configuration file that test instances of containerd copy and change. */
const CONFIG = process.env['CLOUDLESS_CRI_CONTAINERD_CONFIG'];
/** Reason why tests cannot start a containerd of their own; undefined when they can. */
export const CONTAINERD_SKIP_REASON =
  SKIP_REASON ?? (CONFIG === undefined ? 'CLOUDLESS_CRI_CONTAINERD_CONFIG is not set' : undefined);
/** Interval of {@link TestContainerd.retryUntilAnswered}. */
const RETRY_MS = 50;

/** A containerd with images and state of its own, which a test may kill and restart. */
export class TestContainerd {
  /** Absolute path of the directory with its files, removed by `dispose`. */
  readonly directory = mkdtempSync(path.join(tmpdir(), 'cloudless-containerd-'));
  readonly socketPath = path.join(this.directory, 'cri.sock');
  private process: ChildProcess;

  constructor() {
    const settings = {
      root: path.join(this.directory, 'root'),
      state: path.join(this.directory, 'state'),
      address: this.socketPath,
    };
    let config = readFileSync(CONFIG ?? '', 'utf8');
    for (const [key, value] of Object.entries(settings))
      config = config.replace(new RegExp(`^(\\s*${key} = ).*$`, 'm'), `$1"${value}"`);
    writeFileSync(path.join(this.directory, 'containerd.toml'), config);
    this.process = this.spawn();
  }

  /**
   * Repeats a call every 50 ms until containerd answers.
   * @throws The error of the call, unless its kind is `unavailable`.
   */
  async retryUntilAnswered<Result>(call: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await call();
      } catch (reason) {
        if ((reason as { kind?: string }).kind !== 'unavailable') throw reason;
        await sleep(systemClock, RETRY_MS);
      }
    }
  }

  /** Sends a signal to containerd, by default SIGKILL. Resolves when containerd has ended. */
  async kill(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<void> {
    const ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.kill(signal);
    await ended;
  }

  /** Starts containerd again with the same images and state. Call it after {@link kill}. */
  restart(): void {
    this.process = this.spawn();
  }

  /** Ends containerd and removes its files. */
  async dispose(): Promise<void> {
    await this.kill('SIGTERM');
    rmSync(this.directory, { recursive: true, force: true });
  }

  private spawn(): ChildProcess {
    return spawn('containerd', ['--config', path.join(this.directory, 'containerd.toml')], {
      stdio: 'ignore',
    });
  }
}
