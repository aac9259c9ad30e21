import pc from 'picocolors';
import { CloudlessError, sleep } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import type { CommandLine } from './run-command.js';

/** The cluster and the output of a demo. */
export interface DemoOptions {
  readonly commands: CommandLine;
  /** Prints a text. */
  readonly write: (text: string) => void;
}

/** Time after which the demo fails. A killed replica is ready again within a few seconds. */
const RECOVERY_LIMIT_MS = 20_000;
/** The workload of examples/hello.yaml, which must run before the demo. */
const NAME = 'hello';

/**
 * Shows the life of a workload step by step: scale, update, failure, logs, exec, events, delete.
 * @throws {@link CloudlessError} of kind `internal` that names the failed step.
 */
export async function runDemo({ commands, write }: DemoOptions): Promise<void> {
  const step = async (title: string, action: () => Promise<unknown>): Promise<void> => {
    write(`\n${pc.cyan(`── ${title}`)}\n`);
    try {
      await action();
    } catch (reason) {
      throw new CloudlessError('internal', `demo step "${title}" failed`, { cause: reason });
    }
  };
  await step('scale to 5: the replicas are spread over the zones', async () => {
    await commands.run('workload', 'scale', NAME, '5', '--wait');
    await commands.run('workload', 'describe', NAME);
  });
  await step('a rolling update: new replicas are ready before old ones stop', () =>
    commands.run('workload', 'update', NAME, '--env', 'GREETING=version two', '--wait'),
  );
  await step('kill -9 one replica: its agent restarts it at once', () =>
    killOneReplica(commands, write),
  );
  await step('what the replicas print', () =>
    commands.run('workload', 'logs', NAME, '--tail', '2'),
  );
  await step('run a command inside a replica', () =>
    commands.run(
      'workload',
      'exec',
      NAME,
      '--',
      'node',
      '-p',
      '`${process.env.GREETING}, port ${process.env.PORT}`',
    ),
  );
  await step('what happened', () => commands.run('events', '--limit', '8'));
  await step('delete', () => commands.run('workload', 'delete', NAME, '--wait'));
}

/** The fields of a workload in JSON that the demo uses. */
interface WorkloadJson {
  readonly status?: {
    readonly replicas?: readonly {
      readonly id: string;
      readonly nodeId: string;
      readonly containerId: string;
      readonly ready?: boolean;
      readonly restarts?: number;
    }[];
  };
}

/** Kills the process of a ready replica and waits until the replica is ready again. */
async function killOneReplica(commands: CommandLine, write: (text: string) => void): Promise<void> {
  const listReplicas = async () =>
    ((await commands.read('workload', 'get', NAME)) as WorkloadJson).status?.replicas ?? [];
  const victim = (await listReplicas()).find(({ ready }) => ready);
  if (victim === undefined) throw new CloudlessError('precondition', 'no replica is ready');
  const { containers } = (await commands.read('get', 'containers')) as {
    readonly containers: readonly { readonly containerId: string; readonly pid?: number }[];
  };
  const pid = containers.find(({ containerId }) => containerId === victim.containerId)?.pid;
  if (pid === undefined) throw new CloudlessError('internal', 'the replica has no process');
  const killedAtMs = systemClock.now();
  process.kill(pid, 'SIGKILL');
  write(`killed process ${pid} of replica ${victim.id} on ${victim.nodeId}\n`);
  const restarts = victim.restarts ?? 0;
  const isBack = async () =>
    (await listReplicas()).some(
      ({ id, ready, restarts: now = 0 }) => id === victim.id && ready === true && now > restarts,
    );
  while (!(await isBack())) {
    if (systemClock.now() - killedAtMs > RECOVERY_LIMIT_MS)
      throw new CloudlessError('deadline', `replica ${victim.id} is not ready again`);
    await sleep(systemClock, 10);
  }
  write(
    `ready again after ${Math.round(systemClock.now() - killedAtMs)} ms: same replica, same node, one restart\n`,
  );
}
