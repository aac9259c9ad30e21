import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { systemClock } from '@cloudless/app-kit';
import { LINE_BYTES } from './log-writer.js';
import { readCpuSeconds } from './process-figures.js';

const BUSYBOX = '/bin/busybox';
const IMAGE = 'cloudless-bench-logs';
/** Time limit of a `docker` call, milliseconds. */
const CALL_LIMIT_MS = 60_000;
const DAEMON_PID_FILES = ['/var/run/docker.pid', '/run/docker.pid'];

/**
 * Measures `docker logs -f` of a log with the given number of lines.
 * @returns Figures, or the reason as `skipped` when no Docker daemon or busybox is there.
 */
export async function measureDocker(lines: number): Promise<Readonly<Record<string, unknown>>> {
  const { status } = spawnSync('docker', ['info'], { stdio: 'ignore', timeout: CALL_LIMIT_MS });
  if (status !== 0) return { skipped: 'docker is not there: no daemon answers `docker info`' };
  if (!existsSync(BUSYBOX))
    return { skipped: `docker runs, but ${BUSYBOX} for its image is missing` };
  const archive = execFileSync('tar', ['-c', '-C', '/', BUSYBOX.slice(1)]);
  execFileSync('docker', ['import', '-', IMAGE], {
    input: archive,
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  const script = `yes ${'x'.repeat(LINE_BYTES - 1)} | ${BUSYBOX} head -n ${lines}; exec ${BUSYBOX} sleep 3600`;
  const command = [BUSYBOX, 'sh', '-c', script.replace('yes', `${BUSYBOX} yes`)];
  const container = execFileSync('docker', ['run', '-d', IMAGE, ...command], {
    encoding: 'utf8',
  }).trim();
  try {
    await follow(container, lines); // Follows once so that the whole log is written.
    const daemon = findDaemonPid();
    const before = daemon === undefined ? 0 : readCpuSeconds(daemon);
    const startedAt = systemClock.now();
    const clientSeconds = await follow(container, lines);
    const seconds = (systemClock.now() - startedAt) / 1_000;
    const toMicros = (cpuSeconds: number): number => Math.round((cpuSeconds / lines) * 1e7) / 10;
    return {
      lines,
      linesPerSecond: Math.round(lines / seconds),
      cpuMicrosPerLine: {
        client: toMicros(clientSeconds),
        ...(daemon === undefined ? {} : { daemon: toMicros(readCpuSeconds(daemon) - before) }),
      },
    };
  } finally {
    spawnSync('docker', ['rm', '-f', container], { stdio: 'ignore', timeout: CALL_LIMIT_MS });
    spawnSync('docker', ['rmi', IMAGE], { stdio: 'ignore', timeout: CALL_LIMIT_MS });
  }
}

function findDaemonPid(): number | undefined {
  const file = DAEMON_PID_FILES.find((path) => existsSync(path));
  return file === undefined ? undefined : Number(readFileSync(file, 'utf8'));
}

/**
 * Follows the log of a container until all lines were read.
 * @returns CPU time of the `docker` client, seconds.
 */
function follow(container: string, lines: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn('docker', ['logs', '-f', container], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let bytes = 0;
    child.once('error', reject);
    child.stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes < lines * LINE_BYTES || child.killed) return;
      const seconds = readCpuSeconds(child.pid ?? 0);
      child.once('close', () => resolve(seconds)).kill();
    });
  });
}
