import { sleep } from '@cloudless/base';
import type { Node } from '@cloudless/api';
import { CliFailure, ExitCode, isTransient } from '../failure.js';
import { count, formatSpan } from '../output/human.js';
import type { Session } from '../session.js';
import { Deadline } from '../streams.js';
import { Progress } from './progress.js';
import { WAIT_TIMEOUT_MS } from './wait-workload.js';

/** How often a draining node is looked at. */
const POLL_MS = 500;

/**
 * Waits until a draining node has no replicas left, showing how many there are.
 * @throws {@link CliFailure} of exit code 4 when somebody ends the drain, 6 when the time is over.
 */
export async function waitUntilDrained(session: Session, nodeId: string): Promise<Node> {
  const { clock, signal } = session.io;
  const timeoutMs = session.settings.timeoutMs ?? WAIT_TIMEOUT_MS;
  const deadline = new Deadline(clock, signal, timeoutMs);
  const progress = new Progress(session);
  let left = '';
  try {
    for (;;) {
      const node = await look(session, nodeId);
      if (node !== undefined) {
        const replicas = node.status?.replicaCount ?? 0;
        const reason = node.status?.reason ?? '';
        left = `${count(replicas, 'replica')} left${reason === '' ? '' : `: ${reason}`}`;
        await progress.show(`node ${nodeId}: ${replicas === 0 ? 'drained' : left}`);
        if (replicas === 0) return node;
        if (!node.draining) throw new CliFailure(ExitCode.conflict, `the drain of node ${nodeId} was ended with ${left}`);
      }
      await sleep(clock, POLL_MS, deadline.signal);
    }
  } catch (reason) {
    if (deadline.passed && !(reason instanceof CliFailure)) {
      throw new CliFailure(ExitCode.timeout, `node ${nodeId} is not drained after ${formatSpan(timeoutMs)}: ${left}`);
    }
    throw reason;
  } finally {
    deadline.cancel();
    progress.done();
  }
}

/** The node, or `undefined` when the coordinator cannot be asked right now: the next look may succeed. */
async function look(session: Session, nodeId: string): Promise<Node | undefined> {
  try {
    return await session.client.getNode({ nodeId }, session.callOptions(POLL_MS * 20));
  } catch (reason) {
    if (isTransient(reason)) return undefined;
    throw reason;
  }
}
