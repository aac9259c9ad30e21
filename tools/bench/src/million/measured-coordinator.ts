import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { createCoordinatorClient, type CoordinatorClient } from '@cloudless/api';
import { RunningProgram, findBundle } from '@cloudless/e2e';
import {
  readCpuSeconds,
  readFileMemoryBytes,
  readMemoryBytes,
  readPeakMemoryBytes,
} from '../process-figures.js';

/** Script that starts and writes profiles at a signal. */
const PROFILER = new URL('profile-on-signal.mjs', import.meta.url).href;

/** Counters of the coordinator since its start, and its resources. */
export interface CoordinatorFigures {
  readonly cpuSeconds: number;
  readonly memoryBytes: number;
  /** The part of `memoryBytes` that belongs to mapped files: the store and the program. */
  readonly fileMemoryBytes: number;
  /** Largest `memoryBytes` so far. */
  readonly peakMemoryBytes: number;
}

/** Values of the metrics of a coordinator by series, such as `cloudless_nodes{alive="true"}`. */
export type Metrics = ReadonlyMap<string, number>;

export interface MeasuredCoordinatorOptions {
  /** Directory of the state. */
  readonly dataDir: string;
  /** Flags of Node.js, such as `--max-old-space-size=3000`. */
  readonly nodeFlags: readonly string[];
  /** Directory for CPU profiles. Absent: none can be made. */
  readonly profileDir?: string | undefined;
}

/** A coordinator in plaintext on loopback, whose CPU, memory and metrics the benchmark reads. */
export class MeasuredCoordinator {
  private program: RunningProgram | undefined;
  private currentUrl = '';
  private opsUrl = '';
  private longestPauseSeconds = 0;

  constructor(private readonly options: MeasuredCoordinatorOptions) {}

  get url(): string {
    return this.currentUrl;
  }

  get client(): CoordinatorClient {
    return createCoordinatorClient(createGrpcTransport({ baseUrl: this.url }));
  }

  /** Starts the coordinator and waits until it is ready. Later starts use the first port again. */
  async start(): Promise<void> {
    const { dataDir, nodeFlags, profileDir } = this.options;
    await mkdir(dataDir, { recursive: true });
    const profileFlags = profileDir === undefined ? [] : ['--import', PROFILER];
    if (profileDir !== undefined) await mkdir(profileDir, { recursive: true });
    const port = this.currentUrl === '' ? '0' : new URL(this.currentUrl).port;
    const flags = ['--enable-source-maps', ...profileFlags, ...nodeFlags];
    const args = ['--tls', 'off', '--port', port, '--ops-port', '0'];
    this.program = RunningProgram.start(
      process.execPath,
      [...flags, findBundle('coordinator'), ...args, '--data-dir', join(dataDir, 'coordinator')],
      profileDir === undefined ? {} : { BENCH_PROFILE_DIR: profileDir },
    );
    const ready = await this.program.waitForLog('coordinator ready');
    this.currentUrl = String(ready['url']);
    this.opsUrl = String(ready['opsUrl']);
  }

  /** Ends the coordinator; SIGKILL leaves it no time to write anything. */
  async stop(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    await this.program?.kill(signal);
  }

  /**
   * Runs something while the coordinator makes a CPU profile; just runs it without `profileDir`.
   * @param name - Name of the file, without extension.
   */
  async profile<Result>(name: string, run: () => Promise<Result>): Promise<Result> {
    const { profileDir } = this.options;
    const { program } = this;
    if (profileDir === undefined || program === undefined) return run();
    process.kill(program.pid, 'SIGUSR2');
    try {
      return await run();
    } finally {
      const seen = program.lines.length;
      process.kill(program.pid, 'SIGUSR2');
      const line = await program.waitForLine(
        (text) => text.includes('"profile written"') && program.lines.lastIndexOf(text) >= seen,
      );
      await rename(
        String((JSON.parse(line) as { file: unknown }).file),
        join(profileDir, `${name}.cpuprofile`),
      );
    }
  }

  readFigures(): CoordinatorFigures {
    const pid = this.program?.pid ?? 0;
    return {
      cpuSeconds: readCpuSeconds(pid),
      memoryBytes: readMemoryBytes(pid),
      fileMemoryBytes: readFileMemoryBytes(pid),
      peakMemoryBytes: readPeakMemoryBytes(pid),
    };
  }

  /** Log lines of the newest process. */
  get logLines(): readonly string[] {
    return this.program?.lines ?? [];
  }

  async readMetrics(): Promise<Metrics> {
    const response = await fetch(`${this.opsUrl}/metrics`);
    const metrics = parseMetrics(await response.text());
    // Each scrape begins a new maximum.
    const pauseSeconds = sumOf(metrics, 'cloudless_lease_sweep_lag_seconds');
    this.longestPauseSeconds = Math.max(this.longestPauseSeconds, pauseSeconds);
    return metrics;
  }

  /** Returns the longest delay of a lease sweep in seconds, and begins a new maximum. */
  takeLongestPause(): number {
    const longest = this.longestPauseSeconds;
    this.longestPauseSeconds = 0;
    return longest;
  }
}

/** Parses the text format of Prometheus; lines that are no samples are skipped. */
export function parseMetrics(text: string): Metrics {
  const metrics = new Map<string, number>();
  for (const line of text.split('\n')) {
    const [, series, value] = /^([a-z_]+(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
    if (series !== undefined) metrics.set(series, Number(value));
  }
  return metrics;
}

/** Adds up all series of a metric whose labels contain `label`, such as `result="ok"`. */
export function sumOf(metrics: Metrics, name: string, label = ''): number {
  let sum = 0;
  for (const [series, value] of metrics)
    if ((series === name || series.startsWith(`${name}{`)) && series.includes(label)) sum += value;
  return sum;
}
