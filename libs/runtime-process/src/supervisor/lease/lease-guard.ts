import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { CloudlessError, type ContainerId } from '@cloudless/base';
import { isAlive, readStartToken, signalGroup } from '@cloudless/app-kit/background';
import { layout } from '../container/container-paths.js';
import type { ShellTools } from '../process/launch-script.js';
import type { ProcessReference } from '../../system/process-reference.js';
import { LEASE_GUARD_SCRIPT } from './lease-guard-script.js';

/** Lease of a container for {@link LeaseGuard.update}. */
export interface GuardedLease {
  readonly containerId: ContainerId;
  /** Time of SIGTERM, in seconds since the machine started. */
  readonly endsAtUptimeSeconds: number;
  /** Milliseconds from SIGTERM to SIGKILL. */
  readonly graceMs: number;
  /** Undefined while the process is being started. */
  readonly main: ProcessReference | undefined;
  /** Folder of the container's cgroup; undefined where there are no cgroups. */
  readonly cgroup: string | undefined;
}

/**
 * Runs the lease guard: a shell that outlives supervisor and agent, and ends containers whose lease
 * has expired while the supervisor is dead or stopped. The guard reads a file with all leases at
 * least once a second, and runs only while there are leases.
 */
export class LeaseGuard {
  private readonly file: string;
  private number: number;
  private guard: { readonly child: ChildProcess; readonly reference: ProcessReference } | undefined;
  private leases: readonly GuardedLease[] = [];
  private isClosed = false;

  /**
   * Starts no guard. The guard of an earlier supervisor stays in charge until `update` is called.
   * @param directory - Directory of the supervisor.
   * @param onFault - Called when a guard was killed and no other guard can be started.
   */
  constructor(
    directory: string,
    private readonly tools: ShellTools,
    private readonly onFault: (reason: unknown) => void,
  ) {
    this.file = layout.leases(directory);
    this.number = readHeader(this.file).number;
  }

  /**
   * Replaces all leases. Call it before a call that sets or renews a lease is answered.
   * @throws kind `exhausted` when no guard can be started, or the error of the file system when the
   *   leases cannot be written. The earlier leases then stay in force.
   */
  update(leases: readonly GuardedLease[]): void {
    const hadNone = this.leases.length === 0 && this.guard === undefined;
    this.leases = leases;
    if (leases.length === 0 && hadNone) return this.endEarlierGuard();
    if (leases.length > 0 && this.guard === undefined) return this.start();
    this.write();
    if (leases.length === 0) this.stop();
  }

  /** Kills the guard, and starts no other guard. */
  close(): void {
    this.isClosed = true;
    this.stop();
  }

  private start(): void {
    const earlierGuard = readHeader(this.file).guard;
    this.number += 1;
    // The guard exits without a file. An existing file stays unchanged until the new guard runs, so
    // that the earlier guard stays in charge.
    if (!existsSync(this.file)) this.write();
    const { shell, sleep, grep } = this.tools;
    const child = spawn(
      shell,
      [
        '-c',
        LEASE_GUARD_SCRIPT,
        'cloudless-lease-guard',
        this.file,
        String(this.number),
        sleep,
        grep,
      ],
      {
        cwd: '/',
        env: {},
        detached: true,
        stdio: 'ignore',
      },
    );
    child.on('error', () => undefined); // a failed start shows as a missing process id
    const { pid } = child;
    if (pid === undefined)
      throw new CloudlessError(
        'exhausted',
        'lease: the lease guard cannot be started: the machine is out of processes or memory',
      );
    child.unref();
    const guard = { child, reference: { pid, startToken: readStartToken(pid) ?? '' } };
    this.guard = guard;
    child.on('exit', () => this.onGuardExit(guard));
    this.write();
    if (earlierGuard !== undefined) killGuard(earlierGuard);
  }

  /** Replaces a guard that was killed. */
  private onGuardExit(guard: LeaseGuard['guard']): void {
    if (this.guard !== guard) return;
    this.guard = undefined;
    if (this.isClosed || this.leases.length === 0) return;
    try {
      this.start();
    } catch (reason) {
      this.onFault(reason);
    }
  }

  private stop(): void {
    const { guard } = this;
    this.guard = undefined;
    if (guard !== undefined) killGuard(guard.reference);
  }

  /** Kills the guard of an earlier supervisor, because there are no leases. */
  private endEarlierGuard(): void {
    const { guard } = readHeader(this.file);
    if (guard === undefined) return;
    this.write();
    killGuard(guard);
  }

  /** Replaces the file of leases by an atomic rename. */
  private write(): void {
    const supervisor = { pid: process.pid, startToken: readStartToken(process.pid) ?? '' };
    const guard = this.guard?.reference;
    const header = [
      this.number,
      supervisor.pid,
      supervisor.startToken,
      guard?.pid ?? '-',
      guard?.startToken ?? '-',
    ].join(' ');
    const draft = `${this.file}.new`;
    writeFileSync(draft, `${[header, ...this.leases.map(formatLease)].join('\n')}\n`, {
      mode: 0o600,
    });
    renameSync(draft, this.file);
  }
}

/**
 * Formats a line of the lease file. Times are hundredths of a second since the machine started, as
 * in `/proc/uptime`.
 */
function formatLease({
  containerId,
  endsAtUptimeSeconds,
  graceMs,
  main,
  cgroup,
}: GuardedLease): string {
  // Rounded up: a process that is killed before its lease ends would count as crashed and be
  // restarted.
  const endsAt = Math.ceil(endsAtUptimeSeconds * 100);
  const killAt = endsAt + Math.ceil(graceMs / 10);
  return [
    endsAt,
    killAt,
    containerId,
    main?.pid ?? '-',
    main?.startToken ?? '-',
    cgroup ?? '-',
  ].join(' ');
}

/** Reads number and process of the guard in charge; number 0 when the file has no header. */
function readHeader(file: string): {
  readonly number: number;
  readonly guard: ProcessReference | undefined;
} {
  try {
    const [number = '', , , pid = '', startToken = ''] = (
      readFileSync(file, 'utf8').split('\n')[0] ?? ''
    ).split(' ');
    if (!/^\d{1,9}$/.test(number)) return { number: 0, guard: undefined };
    return {
      number: Number(number),
      guard: /^\d+$/.test(pid) ? { pid: Number(pid), startToken } : undefined,
    };
  } catch {
    return { number: 0, guard: undefined };
  }
}

function killGuard({ pid, startToken }: ProcessReference): void {
  if (isAlive(pid, startToken)) signalGroup(pid, 'SIGKILL'); // the group includes the guard's sleep
}
