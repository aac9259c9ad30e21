import { errorMessageOf, type Clock } from '@cloudless/base';
import type { Order } from '@cloudless/api';
import type { StartProgress } from '@cloudless/runtime';
import { prepareContainer, type ContainerHome, type ContainerPlan } from './replica-containers.js';
import type { ImagePull } from './replica-state.js';

/** Receives the outcome of a {@link ReplicaPreparation}. Not called after `cancel`. */
export interface PreparationListener {
  /** Called when a pull has begun and when it has succeeded. */
  changed(pull: ImagePull): void;
  done(): void;
  /** @param pull - The failed pull, if a pull failed. */
  failed(reason: unknown, pull: ImagePull | undefined): void;
}

/** Preparation of one container start: pulls the image. Begins when constructed. */
export class ReplicaPreparation {
  private readonly leaving = new AbortController();
  private isOver = false;
  private pull: ImagePull | undefined;

  constructor(
    order: Order | undefined,
    container: ContainerPlan,
    private readonly home: ContainerHome & { readonly clock: Clock },
    private readonly listener: PreparationListener,
  ) {
    const progress = (step: StartProgress): void => this.take(step);
    Promise.resolve()
      .then(() => prepareContainer(order, container, home, progress, this.leaving.signal))
      .then(
        () => this.end(() => listener.done()),
        (reason: unknown) => this.end(() => listener.failed(reason, this.failedPull(reason))),
      );
  }

  /** Aborts the preparation. @returns False when it had already ended. */
  leave(): boolean {
    if (this.isOver) return false;
    this.isOver = true;
    this.leaving.abort();
    return true;
  }

  private end(tell: () => void): void {
    if (this.isOver) return;
    this.isOver = true;
    tell();
  }

  private take(step: StartProgress): void {
    if (this.isOver) return;
    this.pull = toImagePull(step, this.pull, this.home.clock.wallTime());
    // a failed pull is reported together with the failed start
    if (this.pull.phase !== 'failed') this.listener.changed(this.pull);
  }

  /** A pull that was interrupted by the loss of the runtime counts as failed. */
  private failedPull(reason: unknown): ImagePull | undefined {
    const { pull } = this;
    if (pull?.phase !== 'pulling') return pull;
    const tookMs = Math.max(0, this.home.clock.wallTime() - pull.startedAtMs);
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
    ...(sizeBytes === undefined ? {} : { sizeBytes }),
  };
}
