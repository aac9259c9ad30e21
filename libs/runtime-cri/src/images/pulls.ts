import {
  CloudlessError,
  errorKindOf,
  errorMessageOf,
  StoppedError,
  type Clock,
  type StopSignal,
} from '@cloudless/base';
import type { StartProgress } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';

/**
 * Keeps a record of a pull: called before it, and what it returns after it, with what the runtime
 * calls the image.
 */
export type PullRecorder = () => Promise<(id: string) => Promise<void>>;

/** Needs of {@link Pulls}. */
export interface PullsOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly record: PullRecorder;
}

/** One who waits for a pull. */
export interface PullWaiter {
  readonly progress: (step: StartProgress) => void;
  readonly signal: StopSignal;
}

/** An image that was pulled. */
interface Pulled {
  /** What the runtime calls it. */
  readonly id: string;
  readonly sizeBytes?: number;
}

/** A pull that runs. */
interface Pull {
  readonly result: Promise<Pulled>;
  readonly startedAt: number;
  readonly cancel: AbortController;
  /** It was begun because the image was not there. */
  readonly missing: boolean;
  waiters: number;
}

/**
 * Pulls images: each once however many ask for it at the same time, and to its end unless all of
 * them have gone.
 */
export class Pulls {
  private readonly running = new Map<string, Pull>();

  constructor(private readonly options: PullsOptions) {}

  /** Whether an image is being pulled because it was not there. */
  isMissing(image: string): boolean {
    return this.running.get(image)?.missing === true;
  }

  /**
   * Begins a pull, or waits for the one that runs.
   * @returns What the runtime calls the image.
   * @throws kind `invalid` for what is no image reference, `precondition` with the registry's text
   *   when it cannot be pulled, {@link StoppedError} when the signal is aborted: the pull goes on
   *   while anybody else waits for it.
   */
  async wait(image: string, missing: boolean, { progress, signal }: PullWaiter): Promise<string> {
    const pull = this.running.get(image) ?? this.begin(image, missing);
    const tookMs = (): number => Math.round(this.options.clock.now() - pull.startedAt);
    progress({ kind: 'pulling', image });
    pull.waiters += 1;
    try {
      const { id, ...size } = await orAborted(pull.result, signal);
      progress({ kind: 'pulled', image, tookMs: tookMs(), ...size });
      return id;
    } catch (reason) {
      if (!(reason instanceof StoppedError)) {
        progress({ kind: 'pullFailed', image, tookMs: tookMs(), reason: errorMessageOf(reason) });
      }
      throw reason;
    } finally {
      pull.waiters -= 1;
      if (pull.waiters === 0) this.end(image, pull);
    }
  }

  private begin(image: string, missing: boolean): Pull {
    const cancel = new AbortController();
    const result = this.pull(image, cancel.signal);
    const pull: Pull = { result, startedAt: this.options.clock.now(), cancel, missing, waiters: 0 };
    this.running.set(image, pull);
    const over = (): void => this.forget(image, pull);
    result.then(over, over);
    return pull;
  }

  private end(image: string, pull: Pull): void {
    pull.cancel.abort();
    this.forget(image, pull);
  }

  private forget(image: string, pull: Pull): void {
    if (this.running.get(image) === pull) this.running.delete(image);
  }

  private async pull(image: string, cancelled: AbortSignal): Promise<Pulled> {
    const recordAs = await this.options.record();
    try {
      const { imageRef } = await this.options.client.image('PullImage', (calls, signal) =>
        calls.pullImage({ image: { image } }, { signal: AbortSignal.any([signal, cancelled]) }),
      );
      const pulled = await this.describe(imageRef);
      await recordAs(pulled.id);
      return pulled;
    } catch (reason) {
      throw pullFailure(image, reason);
    }
  }

  /** Some runtimes answer a pull with a digest in place of the id. */
  private async describe(ref: string): Promise<Pulled> {
    const { image } = await this.options.client.quickImage('ImageStatus', (calls, signal) =>
      calls.imageStatus({ image: { image: ref } }, { signal }),
    );
    if (image === undefined) return { id: ref };
    return { id: image.id, ...(image.size === 0n ? {} : { sizeBytes: Number(image.size) }) };
  }
}

/** @throws {@link StoppedError} as soon as the signal is aborted. */
function orAborted<Result>(work: Promise<Result>, signal: StopSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(new StoppedError(signal.reason));
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/** What a failed pull means: the registry's own words, unless the runtime itself is away. */
function pullFailure(image: string, reason: unknown): unknown {
  if (isUnreadable(reason)) return unreadable(image, reason);
  if (
    errorKindOf(reason) === 'unavailable' &&
    !/pull|resolve|registry|dial tcp/i.test(errorMessageOf(reason))
  )
    return reason;
  return new CloudlessError(
    'precondition',
    `image ${image} cannot be pulled: ${errorMessageOf(reason)}`,
    { cause: reason },
  );
}

/** Whether a runtime says that something is no image reference. */
export function isUnreadable(reason: unknown): boolean {
  return (
    errorKindOf(reason) === 'invalid' ||
    /invalid reference format|failed to parse (?:image )?reference/i.test(errorMessageOf(reason))
  );
}

export function unreadable(image: string, cause: unknown): CloudlessError {
  return new CloudlessError('invalid', `image: ${JSON.stringify(image)} is no image reference`, {
    cause,
  });
}
