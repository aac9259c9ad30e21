import { DrainStatus_Phase } from '@cloudless/api';
import type { DrainStatus } from '@cloudless/api';
import { formatCount } from '../output/human.js';
import { toOneLine } from '../output/table.js';
import type { CliSession } from '../call/cli-session.js';
import { describeDrain } from '../views/drain-view.js';
import { Progress } from './progress.js';
import { roundCount } from './rollout-counts.js';

/** Maximum number of waiting reasons shown for each node, so that the display fits on a screen. */
const MAX_WAITING = 8;

/**
 * Shows the progress of drains: redrawn on a terminal, otherwise a line for each relevant change.
 */
export class DrainProgress {
  /** Last drain status of each node. */
  private readonly drains = new Map<string, DrainStatus>();
  /** Last reported state of each node, without counts that fluctuate. */
  private readonly reported = new Map<string, string>();
  private readonly progress: Progress;

  constructor(
    session: CliSession,
    private readonly nodeIds: readonly string[],
  ) {
    this.progress = new Progress(session);
  }

  /** Shows a new drain status of a node. */
  async showDrain(nodeId: string, drain: DrainStatus): Promise<void> {
    this.drains.set(nodeId, drain);
    if (this.progress.isRedrawn) return this.progress.showState(...this.formatAll());
    const [reason, ...others] = drain.waiting;
    const suffix = others.length === 0 ? '' : ` (and ${others.length} more)`;
    const line = `node ${nodeId}: ${describeDrain(drain)}${reason === undefined ? '' : `: ${toOneLine(reason)}${suffix}`}`;
    // A line is printed when fewer replicas remain, the phase changes or the reason changes. Counts
    // in a reason fluctuate and are ignored.
    const state = `${roundCount(drain.remaining, drain.total)} ${drain.phase} ${(reason ?? '').replaceAll(/\d+/g, '#')}`;
    const hasChanged = this.reported.get(nodeId) !== state;
    this.reported.set(nodeId, state);
    await this.progress.showState(line, [], hasChanged);
  }

  /** Ends redrawing. The last state stays on the terminal. */
  end(): void {
    this.progress.end();
  }

  /** Formats all drains: the headline, and the lines below. */
  private formatAll(): readonly [headline: string, details: readonly string[]] {
    const lines = this.nodeIds.flatMap((nodeId) => {
      const drain = this.drains.get(nodeId);
      if (drain === undefined) return [`node ${nodeId}: …`];
      const waiting = drain.waiting.slice(0, MAX_WAITING).map((line) => `- ${line}`);
      const hiddenCount = drain.waiting.length - MAX_WAITING;
      return [
        `node ${nodeId}: ${describeDrain(drain)}`,
        ...waiting,
        ...(hiddenCount > 0 ? [`- and ${hiddenCount} more`] : []),
      ];
    });
    const [only = '', ...below] = lines;
    if (this.nodeIds.length === 1) return [only, below];
    const drainedCount = [...this.drains.values()].filter(
      ({ phase }) => phase === DrainStatus_Phase.DRAINED,
    ).length;
    return [`${drainedCount} of ${formatCount(this.nodeIds.length, 'node')} drained`, lines];
  }
}
