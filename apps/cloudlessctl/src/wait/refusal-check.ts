import type { ExplainWorkloadResponse, NodeVerdict } from '@cloudless/api';
import { CliFailure, ExitCode } from '../call/failure.js';
import type { CliSession } from '../call/cli-session.js';
import { formatWorkloadName, type WorkloadName } from '../names.js';
import { toOneLine } from '../output/table.js';

/** Time that a node which is just joining gets before the first check, in milliseconds. */
export const JOIN_GRACE_MS = 3_000;
/** Time between two checks while replicas have no node, in milliseconds. */
const RECHECK_MS = 5_000;
/** Help text of `--wait-capacity`. */
export const WAIT_CAPACITY_TEXT =
  'keep waiting when no present node can ever run a replica, for example until a node joins';
/** Most nodes that a failure lists. */
const MAX_NODES = 6;

/**
 * Ends a wait when no node can ever run a replica: each node has a reason that time does not change.
 * The check starts {@link JOIN_GRACE_MS} after the first state with a replica without a node.
 */
export class RefusalCheck {
  private readonly controller = new AbortController();
  private timer: { cancel(): void } | undefined;
  private isEnded = false;

  constructor(
    private readonly session: CliSession,
    private readonly name: WorkloadName,
  ) {}

  /** Aborted with a {@link CliFailure} when waiting does not help. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Starts the checks while a replica has no node, and stops them when all have one. */
  setUnplaced(isUnplaced: boolean): void {
    if (!isUnplaced) {
      this.timer?.cancel();
      this.timer = undefined;
    } else this.timer ??= this.schedule(JOIN_GRACE_MS);
  }

  /** Ends all checks. */
  end(): void {
    this.isEnded = true;
    this.timer?.cancel();
  }

  private schedule(delayMs: number): { cancel(): void } {
    return this.session.io.clock.setTimer(delayMs, () => void this.check());
  }

  private async check(): Promise<void> {
    const { client } = this.session;
    const own = this.timer;
    try {
      const explained = await client.explainWorkload(
        { namespace: this.name.namespace, name: this.name.name },
        this.session.getCallOptions(RECHECK_MS),
      );
      if (this.isEnded || this.timer !== own) return;
      if (isRefusedForGood(explained))
        return this.controller.abort(createRefusal(this.name, explained));
    } catch {
      // The wait goes on: the next check, or the watch, shows a lasting fault.
    }
    // Another timer means that all replicas had a node meanwhile: the grace began again.
    if (!this.isEnded && this.timer === own) this.timer = this.schedule(RECHECK_MS);
  }
}

/**
 * Returns true when every node has a reason that only a change of the workload or of the cluster
 * ends. False for an empty cluster, whose first node may be joining.
 */
export function isRefusedForGood({ nodes }: Pick<ExplainWorkloadResponse, 'nodes'>): boolean {
  return (
    nodes.length > 0 &&
    nodes.every(({ fits, reasons }) => !fits && reasons.some(({ lasting }) => lasting))
  );
}

/** Creates the failure of a wait that no time can end: all reasons, and the smallest change. */
export function createRefusal(
  name: WorkloadName,
  { refusal, suggestion, nodes }: ExplainWorkloadResponse,
): CliFailure {
  const hidden = nodes.length - MAX_NODES;
  return new CliFailure(
    ExitCode.noCapacity,
    [
      `${formatWorkloadName(name)}: ${toOneLine(refusal) || 'no node fits'}`,
      ...nodes.slice(0, MAX_NODES).map(formatNode),
      ...(hidden > 0 ? [`  and ${hidden} more nodes`] : []),
      ...(suggestion === '' ? [] : [`smallest change: ${toOneLine(suggestion)}`]),
      'waiting does not change this; to wait for other nodes, add --wait-capacity',
    ].join('\n'),
  );
}

function formatNode({ nodeId, zone, reasons }: NodeVerdict): string {
  const where = zone === '' ? nodeId : `${nodeId} (${zone})`;
  return `  ${where}: ${reasons.map(({ text }) => toOneLine(text)).join('; ')}`;
}
