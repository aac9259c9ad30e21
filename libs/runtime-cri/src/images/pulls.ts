import {
  CloudlessError,
  errorKindOf,
  errorMessageOf,
  StoppedError,
  type Clock,
  type StopSignal,
} from '@cloudless/base';
import type { ImageCredentials, StartProgress } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';

/**
 * Records a pull. Called before each pull. The returned function is called after a successful pull,
 * with the id of the image in the runtime. Neither function may reject.
 */
export type PullRecorder = () => Promise<(id: string) => Promise<void>>;

/** Arguments of {@link Pulls}. */
export interface PullsOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly record: PullRecorder;
}

/** An image to pull. */
export interface ImageToPull {
  readonly name: string;
  /** Credentials for the registry; absent: those of the container runtime, if any. */
  readonly credentials?: ImageCredentials;
}

/** A caller that waits for a pull. */
export interface PullWaiter {
  /** Called when the pull begins, succeeds or fails. */
  readonly progress: (step: StartProgress) => void;
  /** Ends the wait of this caller when aborted. */
  readonly signal: StopSignal;
}

/** Result of a pull. */
interface Pulled {
  /** Id of the image in the runtime. */
  readonly id: string;
  /** Absent when the runtime does not report a size. */
  readonly sizeBytes?: number;
}

/** A running pull. */
interface Pull {
  readonly image: ImageToPull;
  readonly result: Promise<Pulled>;
  /** Monotonic time at which the pull began. */
  readonly startedAtMs: number;
  readonly cancel: AbortController;
  /** True when the pull began because the image was missing. */
  readonly wasMissing: boolean;
  /** Number of callers that wait for the pull. */
  waiters: number;
}

/**
 * Pulls images. Concurrent requests for an image with the same credentials share one pull, which is
 * cancelled when all of them have left.
 */
export class Pulls {
  private readonly running = new Set<Pull>();

  constructor(private readonly options: PullsOptions) {}

  /** Returns true while an image is being pulled because it was missing. */
  isPullingMissing(image: ImageToPull): boolean {
    return this.find(image)?.wasMissing === true;
  }

  /**
   * Starts a pull, or joins the running pull of the image.
   * @param wasMissing - True when the image is missing, false when it is pulled only by policy.
   *   Ignored when the pull is already running.
   * @returns The id of the image in the runtime.
   * @throws kind `invalid` for an invalid image reference, `precondition` with the registry's text
   *   when the image cannot be pulled, {@link StoppedError} when the signal is aborted. The pull
   *   continues while another caller waits for it.
   */
  async pullOrJoin(
    wanted: ImageToPull,
    wasMissing: boolean,
    { progress, signal }: PullWaiter,
  ): Promise<string> {
    const image = wanted.name;
    const pull = this.find(wanted) ?? this.begin(wanted, wasMissing);
    const tookMs = (): number => Math.round(this.options.clock.now() - pull.startedAtMs);
    progress({ kind: 'pulling', image });
    pull.waiters += 1;
    try {
      const { id, ...size } = await rejectOnAbort(pull.result, signal);
      progress({ kind: 'pulled', image, tookMs: tookMs(), ...size });
      return id;
    } catch (reason) {
      if (!(reason instanceof StoppedError)) {
        progress({ kind: 'pullFailed', image, tookMs: tookMs(), reason: errorMessageOf(reason) });
      }
      throw reason;
    } finally {
      pull.waiters -= 1;
      if (pull.waiters === 0) this.cancel(pull);
    }
  }

  private find({ name, credentials }: ImageToPull): Pull | undefined {
    return [...this.running].find(
      ({ image }) =>
        image.name === name &&
        image.credentials?.username === credentials?.username &&
        image.credentials?.password === credentials?.password,
    );
  }

  private begin(image: ImageToPull, wasMissing: boolean): Pull {
    const cancel = new AbortController();
    const result = this.pull(image, cancel.signal);
    const pull: Pull = {
      image,
      result,
      startedAtMs: this.options.clock.now(),
      cancel,
      wasMissing,
      waiters: 0,
    };
    this.running.add(pull);
    const onEnd = (): void => void this.running.delete(pull);
    result.then(onEnd, onEnd);
    return pull;
  }

  private cancel(pull: Pull): void {
    pull.cancel.abort();
    this.running.delete(pull);
  }

  private async pull(
    { name: image, credentials }: ImageToPull,
    cancelled: AbortSignal,
  ): Promise<Pulled> {
    const completeRecord = await this.options.record();
    try {
      const { imageRef } = await this.options.client.callImage('PullImage', (calls, signal) =>
        calls.pullImage(
          // Not spread, so that a field that the request does not have is no valid code.
          { image: { image }, auth: credentials },
          { signal: AbortSignal.any([signal, cancelled]) },
        ),
      );
      const pulled = await this.readPulled(imageRef);
      await completeRecord(pulled.id);
      return pulled;
    } catch (reason) {
      throw toPullError(image, reason);
    }
  }

  /**
   * Reads id and size of a pulled image, because some runtimes answer a pull with a digest instead
   * of the id.
   * @param ref - Reference from the response to the pull.
   */
  private async readPulled(ref: string): Promise<Pulled> {
    const { image } = await this.options.client.callQuickImage('ImageStatus', (calls, signal) =>
      calls.imageStatus({ image: { image: ref } }, { signal }),
    );
    if (image === undefined) return { id: ref };
    return { id: image.id, ...(image.size === 0n ? {} : { sizeBytes: Number(image.size) }) };
  }
}

/**
 * Waits for the work until the signal is aborted. The work continues after that.
 * @throws {@link StoppedError} as soon as the signal is aborted; the error of the work.
 */
function rejectOnAbort<Result>(work: Promise<Result>, signal: StopSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(new StoppedError(signal.reason));
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/**
 * Converts the error of a pull. An error that mentions the registry becomes kind `precondition`
 * even when its kind is `unavailable`, because then the registry, not the runtime, is unreachable.
 */
function toPullError(image: string, reason: unknown): unknown {
  if (isInvalidReference(reason)) return createInvalidReferenceError(image, reason);
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

/** Returns true when a runtime refused a call because the name of an image is malformed. */
export function isInvalidReference(reason: unknown): boolean {
  return (
    errorKindOf(reason) === 'invalid' ||
    /invalid reference format|failed to parse (?:image )?reference/i.test(errorMessageOf(reason))
  );
}

/** Creates the error for a malformed name of an image. */
export function createInvalidReferenceError(image: string, cause: unknown): CloudlessError {
  return new CloudlessError(
    'invalid',
    `image: ${JSON.stringify(image)} is not an image reference`,
    { cause },
  );
}
