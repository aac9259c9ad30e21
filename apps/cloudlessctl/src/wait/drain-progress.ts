import { DrainStatus_Phase } from '@cloudless/api';
import type { DrainStatus } from '@cloudless/api';
import { count } from '../output/human.js';
import { toOneLine } from '../output/table.js';
import type { CliSession } from '../call/cli-session.js';
import { describeDrain } from '../views/drain-view.js';
import { Progress } from './progress.js';
import { roundCount } from './rollout-counts.js';

/** Maximum number of waiting reasons shown per node. */
const MAX_WAITING = 8;

/**
 * Shows the progress of drains: redrawn on a terminal, otherwise a line for each relevant change.
 */
export class DrainProgress {
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

  async showDrain(nodeId: string, drain: DrainStatus): Promise<void> {
    this.drains.set(nodeId, drain);
    if (this.progress.isRedrawn) return this.progress.showState(...this.formatAll());
    const [why, ...others] = drain.waiting;
    const more = others.length === 0 ? '' : ` (and ${others.length} more)`;
    const line = `node ${nodeId}: ${describeDrain(drain)}${why === undefined ? '' : `: ${toOneLine(why)}${more}`}`;
    // Counts in a waiting reason fluctuate, so they do not make a new line. Fewer remaining
    // replicas or another reason do.
    const news = `${roundCount(drain.remaining, drain.total)} ${drain.phase} ${(why ?? '').replaceAll(/\d+/g, '#')}`;
    const isNews = this.reported.get(nodeId) !== news;
    this.reported.set(nodeId, news);
    await this.progress.showState(line, [], isNews);
  }

  /** Ends redrawing; the last state stays on the terminal. */
  end(): void {
    this.progress.end();
  }

  private formatAll(): readonly [headline: string, details: readonly string[]] {
    const lines = this.nodeIds.flatMap((nodeId) => {
      const drain = this.drains.get(nodeId);
      if (drain === undefined) return [`node ${nodeId}: …`];
      const waiting = drain.waiting.slice(0, MAX_WAITING).map((line) => `- ${line}`);
      const more = drain.waiting.length - MAX_WAITING;
      return [
        `node ${nodeId}: ${describeDrain(drain)}`,
        ...waiting,
        ...(more > 0 ? [`- and ${more} more`] : []),
      ];
    });
    const [only = '', ...below] = lines;
    if (this.nodeIds.length === 1) return [only, below];
    const done = [...this.drains.values()].filter(
      ({ phase }) => phase === DrainStatus_Phase.DRAINED,
    ).length;
    return [`${done} of ${count(this.nodeIds.length, 'node')} drained`, lines];
  }
}
