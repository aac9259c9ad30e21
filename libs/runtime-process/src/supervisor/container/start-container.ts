import { rmSync } from 'node:fs';
import {
  CloudlessError,
  definedFields,
  errorMessageOf,
  type Clock,
  type Log,
} from '@cloudless/base';
import type { ContainerEndpoint, ContainerRequest, ContainerStatus } from '@cloudless/runtime';
import { makeDirectorySync } from '@cloudless/app-kit';
import type { Cgroup } from '../../system/cgroups.js';
import type { SupervisorSettings } from '../../wire/messages.js';
import { deductWait } from '../../wire/request-wait.js';
import { buildEnvironment, resolveExecutable } from '../process/launch-command.js';
import type { LaunchContext } from '../process/launch-context.js';
import type { ShellTools } from '../process/launch-script.js';
import { startMainProcess } from '../process/start-process.js';
import type { OwnMounts } from '../resolver/own-mounts.js';
import { toDnsProblem } from '../resolver/dns-problem.js';
import type { ProcessResolvers } from '../resolver/process-resolvers.js';
import { layout } from './container-paths.js';
import { writeRecord } from './container-record.js';
import type { FifoPool } from './fifo-pool.js';
import { ManagedContainer } from './managed-container.js';
import { ContainerOutput } from './container-output.js';

/** Arguments of {@link startContainer} beside the request. */
export interface StartDeps {
  /** Directory of the supervisor. */
  readonly directory: string;
  readonly clock: Clock;
  /** Time on `clock` from which the lease of the request counts. */
  readonly acceptedAtMs: number;
  readonly log: Log;
  readonly fifos: Pick<FifoPool, 'acquire'>;
  readonly bootId: string;
  readonly settings: SupervisorSettings;
  /** Undefined where processes have no guard. */
  readonly tools?: ShellTools | undefined;
  /** The container's own cgroup, which does not exist yet; undefined where there are no cgroups. */
  readonly cgroup?: Cgroup | undefined;
  /** Gives a process a resolv.conf of its own. Default: processes read that of the machine. */
  readonly resolvers?: ProcessResolvers | undefined;
  readonly onExit: (container: ManagedContainer) => void;
  /**
   * Called when the guard of a container was killed: the supervisor must poll for the end of the
   * main process.
   */
  readonly onGuardLost: () => void;
}

/**
 * Creates the files of a container and starts its process, leader of its own session. Removes files
 * and processes again when the start fails.
 * @param ports - One port for each element of `request.ports`.
 * @throws kind `invalid` when the command cannot be executed, `exhausted` when the machine has no
 *   more processes or pipes, `unavailable` when the lease has ended before the process was started;
 *   errors of the file system as they are.
 */
export async function startContainer(
  request: ContainerRequest,
  ports: readonly number[],
  deps: StartDeps,
): Promise<ManagedContainer> {
  const folder = layout.container(deps.directory, request.containerId);
  const home = layout.work(folder);
  const endpoints = request.ports.map(({ name }, index): ContainerEndpoint => ({
    portName: name,
    ip: deps.settings.address,
    port: ports[index] ?? 0,
  }));
  const context: LaunchContext = {
    env: buildEnvironment(request, endpoints, { path: deps.settings.path, home }),
    ...(request.secretEnv === undefined ? {} : { secretNames: Object.keys(request.secretEnv) }),
    workingDir: request.workingDir ?? home,
  };
  makeDirectorySync(home, 0o700);
  try {
    const file = resolveExecutable(request.command, context);
    writeRecord(folder, { format: 1, phase: 'starting' });
    const cgroup = deps.tools === undefined ? undefined : deps.cgroup;
    cgroup?.create();
    const resolver = prepareResolver(request, folder, deps);
    await deps.fifos.acquire(layout.pipe(folder, 'stdout'));
    await deps.fifos.acquire(layout.pipe(folder, 'stderr'));
    const command = { request, endpoints, context, file, folder, cgroup };
    return await launch({ ...command, ...resolver }, deps);
  } catch (reason) {
    deps.cgroup?.kill();
    rmSync(folder, { recursive: true, force: true });
    throw reason;
  }
}

/** A container whose files exist and whose process is not started yet. */
interface PreparedContainer {
  readonly request: ContainerRequest;
  readonly endpoints: readonly ContainerEndpoint[];
  readonly context: LaunchContext;
  readonly file: string;
  readonly folder: string;
  readonly cgroup: Cgroup | undefined;
  readonly ownMounts?: OwnMounts;
  /** Why the process does not get the requested DNS settings. */
  readonly problem?: string;
}

/** Prepares the resolv.conf of the process. A failure never prevents the start. */
function prepareResolver(
  { network }: ContainerRequest,
  folder: string,
  { resolvers }: StartDeps,
): Pick<PreparedContainer, 'ownMounts' | 'problem'> {
  if ((network?.dnsServers ?? []).length === 0) return {};
  try {
    if (resolvers === undefined) throw new CloudlessError('unimplemented', 'not supported here');
    return { ownMounts: resolvers.prepare(layout.resolver(folder), network ?? {}) };
  } catch (reason) {
    return { problem: errorMessageOf(reason) };
  }
}

async function launch(prepared: PreparedContainer, deps: StartDeps): Promise<ManagedContainer> {
  const { request, endpoints, context, folder } = prepared;
  const { clock, log } = deps;
  let container: ManagedContainer | undefined;
  const output = ContainerOutput.open(folder, deps, () => container?.onPipeEnded());
  try {
    const started = await startMainProcess(prepared, deps);
    const { main, mountNamespace, mountProblem = prepared.problem } = started;
    const { containerId, labels } = request;
    const status: ContainerStatus = {
      containerId,
      labels,
      phase: 'running',
      pid: main.pid,
      startedAtMs: started.startedAtMs,
      endpoints,
      ...(mountProblem === undefined ? {} : { problems: [toDnsProblem(mountProblem)] }),
    };
    if (mountProblem !== undefined)
      log.warn('process without its DNS settings', { containerId, error: mountProblem });
    const ownContext = { ...context, ...definedFields({ mountNamespace }) };
    container = new ManagedContainer(status, main, ownContext, {
      directory: folder,
      clock,
      log,
      bootId: deps.bootId,
      output,
      onExit: deps.onExit,
    });
    try {
      if (request.lease === undefined) container.writeRunningRecord();
      // Also writes the record. The start itself took part of the lease.
      else container.renew(deductWait(request.lease, clock.now() - deps.acceptedAtMs));
    } catch (reason) {
      container.close();
      main.kill();
      throw reason;
    }
    const managed = container;
    started.onEnd({
      onEnded: (end) => managed.onEnded(end),
      onGuardLost: () => {
        log.warn('guard of a container lost', { containerId });
        managed.onGuardEnded();
        deps.onGuardLost();
      },
    });
    output.start();
    return managed;
  } catch (reason) {
    output.close();
    throw reason;
  }
}
