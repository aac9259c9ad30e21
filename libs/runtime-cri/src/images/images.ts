import {
  CloudlessError,
  definedFields,
  StoppedError,
  type Clock,
  type ContainerId,
  type StopSignal,
} from '@cloudless/base';
import type { ContainerRequest, StartProgress } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import {
  createInvalidReferenceError,
  isInvalidReference,
  Pulls,
  type ImageToPull,
  type PullRecorder,
  type PullWaiter,
} from './pulls.js';

/** Arguments of {@link Images}. */
export interface ImagesOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  /** Records each pull, so that the garbage collection of images can remove the image later. */
  readonly record: PullRecorder;
}

/** The image of a container that does not exist yet. */
interface HeldImage {
  /** Name of the image in the request. */
  readonly image: string;
  /** Id of the image in the container runtime. */
  readonly id: string;
  /** Monotonic time at which the hold began. */
  readonly sinceMs: number;
  /** True when the start of the container has begun: the hold then does not expire. */
  isStarting: boolean;
}

/** Time after which a prepared image is released when no start of its container has begun. */
const MAX_HOLD_MS = 10 * 60_000;
/** Reports no progress and waits until the pull has ended. For starts without a `prepare`. */
const SILENT_WAITER: PullWaiter = {
  progress: () => undefined,
  signal: new AbortController().signal,
};

/**
 * Provides images for starts: pulls them by policy, and protects them from removal until their
 * container exists.
 */
export class Images {
  private readonly held = new Map<ContainerId, HeldImage>();
  private readonly runningLookups = new Map<string, Promise<string | undefined>>();
  private readonly pulls: Pulls;
  /** Monotonic time at which each image was last requested. */
  private readonly requestedAtMs = new Map<string, number>();
  /** Resolves when the running removal of an image has ended; never rejects. */
  private removal: Promise<void> | undefined;
  /** Number of removals so far. */
  private removalCount = 0;

  constructor(private readonly options: ImagesOptions) {
    this.pulls = new Pulls(options);
  }

  /**
   * Pulls the image of a request when the pull policy requires a pull, and holds the image for the
   * start of its container; see `ContainerRuntime.prepare`.
   * @throws {@link StoppedError} when `signal` is aborted; the errors of {@link Pulls.pullOrJoin};
   *   kind `precondition` when the image is missing and the policy is `never`.
   */
  async prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    const { containerId, image = '' } = request;
    const id = await this.fetch(request, { progress, signal });
    if (signal.aborted) throw new StoppedError(signal.reason);
    this.hold(containerId, { image, id, sinceMs: this.options.clock.now(), isStarting: false });
  }

  /**
   * Returns the image of a container that is being started: the prepared image, or else an image
   * that is fetched now. The image is held until {@link Images.release}.
   * @returns The id of the image in the runtime.
   * @throws The same errors as {@link Images.prepare}, but never {@link StoppedError}.
   */
  async resolve(request: ContainerRequest): Promise<string> {
    const { containerId, image = '' } = request;
    const prepared = this.held.get(containerId);
    if (prepared?.image === image) {
      prepared.isStarting = true;
      return prepared.id;
    }
    const id = await this.fetch(request, SILENT_WAITER);
    this.hold(containerId, { image, id, sinceMs: this.options.clock.now(), isStarting: true });
    return id;
  }

  /** Ends the hold. Call it when the container exists, or when its start has failed. */
  release(containerId: ContainerId): void {
    this.held.delete(containerId);
  }

  /** Returns the ids of the held images. */
  getHeldIds(): ReadonlySet<string> {
    this.expire();
    return new Set([...this.held.values()].map(({ id }) => id));
  }

  /**
   * Returns the milliseconds since the last request for each image, by image id. Images that were
   * not requested since this agent started are absent.
   */
  getIdleMs(): ReadonlyMap<string, number> {
    const now = this.options.clock.now();
    return new Map([...this.requestedAtMs].map(([id, atMs]) => [id, now - atMs]));
  }

  /**
   * Removes an image, unless the image is held or was requested within the last `minIdleMs`.
   * Concurrent lookups of images wait for the removal.
   * @param remove - Removes the image from the runtime.
   * @returns True when the image was removed.
   * @throws The errors of `remove`.
   */
  async removeIdle(id: string, minIdleMs: number, remove: () => Promise<void>): Promise<boolean> {
    if (this.getHeldIds().has(id) || (this.getIdleMs().get(id) ?? minIdleMs) < minIdleMs)
      return false;
    this.removalCount += 1;
    const removal = remove();
    const onEnd = (): void => void (this.removal = undefined);
    this.removal = removal.then(onEnd, onEnd);
    await removal;
    this.requestedAtMs.delete(id);
    return true;
  }

  private hold(containerId: ContainerId, held: HeldImage): void {
    this.expire();
    this.held.set(containerId, held);
  }

  /** Ends the holds of containers whose start has not begun in time. */
  private expire(): void {
    const oldestMs = this.options.clock.now() - MAX_HOLD_MS;
    for (const [containerId, { sinceMs, isStarting }] of this.held) {
      if (!isStarting && sinceMs < oldestMs) this.held.delete(containerId);
    }
  }

  /** Finds or pulls an image by its policy. Returns its id in the runtime. */
  private async fetch(
    { image: name = '', imagePull = 'ifNotPresent', imageCredentials }: ContainerRequest,
    waiter: PullWaiter,
  ): Promise<string> {
    if (waiter.signal.aborted) throw new StoppedError(waiter.signal.reason);
    const image = { name, ...definedFields({ credentials: imageCredentials }) };
    if (imagePull === 'always') return this.pull(image, /* wasMissing */ false, waiter);
    // The image is missing as long as this pull runs: joining the pull saves the lookup.
    if (imagePull === 'ifNotPresent' && this.pulls.isPullingMissing(image))
      return this.pull(image, /* wasMissing */ true, waiter);
    const found = await this.findImage(name);
    if (found !== undefined) return found;
    if (imagePull === 'never') {
      throw new CloudlessError(
        'precondition',
        `image ${name} is not on this node, and image_pull.policy is NEVER`,
      );
    }
    return this.pull(image, /* wasMissing */ true, waiter);
  }

  /** @param wasMissing - False when the image may be present and only the policy requires a pull. */
  private async pull(image: ImageToPull, wasMissing: boolean, waiter: PullWaiter): Promise<string> {
    const id = await this.pulls.pullOrJoin(image, wasMissing, waiter);
    this.recordRequest(id);
    return id;
  }

  /** Records a request for the image, which protects the image from {@link Images.removeIdle}. */
  private recordRequest(id: string): void {
    this.requestedAtMs.set(id, this.options.clock.now());
  }

  /**
   * Returns the id of an image; undefined when the image is missing. Concurrent callers share one
   * lookup, so that all of them find the image missing and join the same pull.
   */
  private findImage(image: string): Promise<string | undefined> {
    const running = this.runningLookups.get(image);
    if (running !== undefined) return running;
    const finding = this.findImageNow(image).finally(() => this.runningLookups.delete(image));
    this.runningLookups.set(image, finding);
    return finding;
  }

  /** Repeats a lookup during which an image was removed, because its answer may be outdated. */
  private async findImageNow(image: string): Promise<string | undefined> {
    for (;;) {
      while (this.removal !== undefined) await this.removal;
      const removalsBefore = this.removalCount;
      const found = await this.readImageId(image);
      if (removalsBefore !== this.removalCount) continue;
      if (found !== undefined) this.recordRequest(found);
      return found;
    }
  }

  private async readImageId(image: string): Promise<string | undefined> {
    try {
      const answer = await this.options.client.callQuickImage('ImageStatus', (calls, signal) =>
        calls.imageStatus({ image: { image } }, { signal }),
      );
      return answer.image?.id;
    } catch (reason) {
      throw isInvalidReference(reason) ? createInvalidReferenceError(image, reason) : reason;
    }
  }
}
