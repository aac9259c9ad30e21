import { DrainStatus_Phase } from '@cloudless/api';
import type { DrainStatus } from '@cloudless/api';
import { formatCount } from '../output/human.js';
import { toOneLine } from '../output/table.js';
import type { CliSession } from '../call/cli-session.js';
import { describeDrain } from '../views/drain-view.js';
import { drawBar, drawResult, drawTitle, type PictureLine } from './picture.js';
import type { PictureView } from './picture.js';
import { Progress } from './progress.js';

/** Shows the progress of drains in one view: a picture on a terminal, elsewhere few lines. */
export class DrainProgress {
  /** Last drain status of each node. */
  private readonly drains = new Map<string, DrainStatus>();
  /** Nodes that have had their last line. */
  private readonly ended = new Set<string>();
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
    const isDrained = drain.phase === DrainStatus_Phase.DRAINED;
    // The line of each drained node is printed once.
    const isLastLine = isDrained && !this.ended.has(nodeId);
    if (isDrained) this.ended.add(nodeId);
    const [reason, ...others] = drain.waiting;
    const more = others.length === 0 ? '' : ` (and ${others.length} more)`;
    const reasonText = reason === undefined ? '' : `: ${toOneLine(reason)}${more}`;
    const drains = [...this.drains.values()];
    const total = drains.reduce((sum, other) => sum + other.total, 0);
    const remaining = drains.reduce((sum, other) => sum + other.remaining, 0);
    await this.progress.showState({
      text: `node ${nodeId}: ${describeDrain(drain)}${reasonText}`,
      fraction: total === 0 ? 0 : 1 - remaining / total,
      isFinal: isLastLine,
      draw: (view) => this.drawAll(view),
    });
  }

  /** Ends redrawing. The last state stays on the terminal. */
  end(): void {
    this.progress.end();
  }

  /** Draws a bar and the reasons of each node; a line for each node that is drained. */
  private drawAll(view: PictureView): readonly PictureLine[] {
    const nodes = this.nodeIds.flatMap((nodeId) => this.drawNode(nodeId, view));
    if (this.nodeIds.length === 1) return nodes;
    const summary = `${this.ended.size} of ${formatCount(this.nodeIds.length, 'node')} drained`;
    const isDone = this.ended.size === this.nodeIds.length;
    return isDone
      ? [...nodes, drawResult(summary, view)]
      : [drawTitle(summary, '', view), ...nodes];
  }

  private drawNode(nodeId: string, view: PictureView): readonly PictureLine[] {
    const drain = this.drains.get(nodeId);
    const label = `node ${nodeId}`;
    if (drain === undefined) return [[{ text: `${label}: …` }]];
    if (drain.phase === DrainStatus_Phase.DRAINED) return [drawResult(`${label}: drained`, view)];
    const { remaining, total, waiting } = drain;
    return [
      drawTitle(label, 'is being drained', view),
      drawBar(
        {
          ...{ title: 'moved', count: total - remaining, scale: total, paint: view.style.green },
          text: describeDrain(drain),
        },
        view,
      ),
      ...waiting.map((line) => [{ text: `  ${toOneLine(line)}` }]),
    ];
  }
}
