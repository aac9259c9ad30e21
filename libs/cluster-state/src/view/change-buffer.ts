import { Wakeup, type StopSignal } from '@cloudless/base';
import type { Revision } from '@cloudless/state-store';
import type { RecordKind } from '../records/records.js';
import type { RecordChange } from './record-change.js';
import type { ViewFollower } from './view-follower.js';

/** Records that one revision changed, limited to some kinds. */
export interface BufferedChanges {
  readonly revision: Revision;
  readonly changes: readonly RecordChange[];
}

/**
 * Revisions that wait for one reader at most. The records are those of the view, so a revision
 * costs little; a reader that is further behind reads the history of the store.
 */
const MAX_BUFFERED_REVISIONS = 1_000;

/**
 * The changes of a view from now on, for a reader of its own speed. Ends when the reader is too far
 * behind, or when the view jumps to a snapshot, which lacks what happened in between.
 */
export class ChangeBuffer {
  private waiting: BufferedChanges[] = [];
  private isEnded = false;
  private readonly changed = new Wakeup();
  private readonly unsubscribe: () => void;

  constructor(
    follower: Pick<ViewFollower, 'onBatch'>,
    kinds: readonly RecordKind[],
    maxRevisions = MAX_BUFFERED_REVISIONS,
  ) {
    this.unsubscribe = follower.onBatch(({ revision, changes, isSnapshot }) => {
      if (isSnapshot || this.waiting.length >= maxRevisions) this.close();
      else this.waiting.push({ revision, changes: selectKinds(changes, kinds) });
      this.changed.wake();
    });
  }

  /**
   * Returns the revisions since the last call, once there are any.
   * @returns Empty when the buffer has ended or `signal` is aborted.
   */
  async take(signal: StopSignal): Promise<readonly BufferedChanges[]> {
    while (this.waiting.length === 0 && !this.isEnded && !signal.aborted)
      await this.changed.wait(signal);
    const taken = this.waiting;
    this.waiting = [];
    return taken;
  }

  close(): void {
    this.isEnded = true;
    this.unsubscribe();
  }
}

function selectKinds(
  changes: readonly RecordChange[],
  kinds: readonly RecordKind[],
): readonly RecordChange[] {
  const selected = changes.filter(({ kind }) => kinds.includes(kind));
  return selected.length === 0 ? NO_CHANGES : selected;
}

const NO_CHANGES: readonly RecordChange[] = [];
