import { definedFields, errorMessageOf, type Clock } from '@cloudless/base';
import type { Order } from '@cloudless/api';
import type { StartProgress } from '@cloudless/runtime';
import {
  prepareContainer,
  type ContainerContext,
  type ContainerStart,
} from './replica-containers.js';
import type { ImagePull } from './replica-state.js';

/** Receives the outcome of a {@link ReplicaPreparation}. Not called after `cancel`. */
export interface PreparationListener {
  /** Called when a pull has begun and when it has succeeded. */
  onPull(pull: ImagePull): void;
  /** Called when the image is on this node. */
  onDone(): void;
  /**
   * Called when the start cannot be prepared.
   * @param pull - The failed pull; undefined when no pull has begun.
   */
  onFailed(reason: unknown, pull: ImagePull | undefined): void;
}

/** Preparation of one container start: pulls the image. Begins when constructed. */
export class ReplicaPreparation {
  private readonly cancellation = new AbortController();
  /** True once the listener has been called for the end, or after `cancel`. */
  private hasEnded = false;
  private pull: ImagePull | undefined;
  /** Start of the newest pull on the monotonic clock: the wall clock may jump meanwhile. */
  private pullStartedAt = 0;

  constructor(
    order: Order | undefined,
    container: ContainerStart,
    private readonly context: ContainerContext & { readonly clock: Clock },
    private readonly listener: PreparationListener,
  ) {
    const progress = (step: StartProgress): void => this.recordProgress(step);
    Promise.resolve()
      .then(() => prepareContainer(order, container, context, progress, this.cancellation.signal))
      .then(
        () => this.settle(() => listener.onDone()),
        (reason: unknown) =>
          this.settle(() => listener.onFailed(reason, this.toFailedPull(reason))),
      );
  }

  /**
   * Aborts the preparation.
   * @returns False when the preparation had already ended.
   */
  cancel(): boolean {
    if (this.hasEnded) return false;
    this.hasEnded = true;
    this.cancellation.abort();
    return true;
  }

  private settle(notify: () => void): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    notify();
  }

  private recordProgress(step: StartProgress): void {
    if (this.hasEnded) return;
    if (step.kind === 'pulling') this.pullStartedAt = this.context.clock.now();
    this.pull = toImagePull(step, this.pull, this.context.clock.wallTime());
    // The listener gets a failed pull together with the failed start.
    if (this.pull.phase !== 'failed') this.listener.onPull(this.pull);
  }

  /**
   * Returns the failed pull. A pull that the loss of the runtime has interrupted counts as failed.
   */
  private toFailedPull(reason: unknown): ImagePull | undefined {
    const { pull } = this;
    if (pull?.phase !== 'pulling') return pull;
    const tookMs = this.context.clock.now() - this.pullStartedAt;
    return { ...pull, phase: 'failed', tookMs, reason: errorMessageOf(reason) };
  }
}

function toImagePull(step: StartProgress, before: ImagePull | undefined, nowMs: number): ImagePull {
  const { image } = step;
  if (step.kind === 'pulling') return { image, phase: 'pulling', startedAtMs: nowMs };
  const { tookMs } = step;
  const startedAtMs =
    before?.phase === 'pulling' && before.image === image ? before.startedAtMs : nowMs - tookMs;
  if (step.kind === 'pullFailed')
    return { image, phase: 'failed', startedAtMs, tookMs, reason: step.reason };
  const { sizeBytes } = step;
  return {
    image,
    phase: 'pulled',
    startedAtMs,
    tookMs,
    ...definedFields({ sizeBytes }),
  };
}
