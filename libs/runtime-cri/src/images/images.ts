import {
  CloudlessError,
  StoppedError,
  type Clock,
  type ContainerId,
  type StopSignal,
} from '@cloudless/base';
import type { ContainerRequest, StartProgress } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import {
  isInvalidReference,
  Pulls,
  createInvalidReferenceError,
  type PullRecorder,
  type PullWaiter,
} from './pulls.js';

export interface ImagesOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly record: PullRecorder;
}

/** The image of a container that does not exist yet. */
interface HeldImage {
  readonly image: string;
  readonly id: string;
  readonly since: number;
  isStarting: boolean;
}

/** Time after which an image that was prepared for a start that never came is released. */
const MAX_HOLD_MS = 10 * 60_000;
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
  private readonly requestedAt = new Map<string, number>();
  private removal: Promise<void> | undefined;
  private removals = 0;

  constructor(private readonly options: ImagesOptions) {
    this.pulls = new Pulls(options);
  }

  /**
   * Pulls the image of a request when its policy demands that, and holds it; see {@link
   * ContainerRuntime.prepare}.
   */
  async prepare(
    request: ContainerRequest,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    const { containerId, image = '' } = request;
    const id = await this.fetch(request, { progress, signal });
    if (signal.aborted) throw new StoppedError(signal.reason);
    this.hold(containerId, { image, id, since: this.options.clock.now(), isStarting: false });
  }

  /**
   * Returns the image of a container that is being started: the prepared image, or else an image
   * that is fetched now. The image is held until {@link Images.release}.
   * @returns The id of the image in the runtime.
   */
  async resolve(request: ContainerRequest): Promise<string> {
    const { containerId, image = '' } = request;
    const prepared = this.held.get(containerId);
    if (prepared?.image === image) {
      prepared.isStarting = true;
      return prepared.id;
    }
    const id = await this.fetch(request, SILENT_WAITER);
    this.hold(containerId, { image, id, since: this.options.clock.now(), isStarting: true });
    return id;
  }

  /** Releases the image: the container exists, or its start has failed. */
  release(containerId: ContainerId): void {
    this.held.delete(containerId);
  }

  /** Returns the ids of the images of containers that do not exist yet. */
  getHeldIds(): ReadonlySet<string> {
    this.expire();
    return new Set([...this.held.values()].map(({ id }) => id));
  }

  /**
   * Returns the milliseconds since the last request for each image. Images without a request are
   * absent.
   */
  getIdleMs(): ReadonlyMap<string, number> {
    const now = this.options.clock.now();
    return new Map([...this.requestedAt].map(([id, atMs]) => [id, now - atMs]));
  }

  /**
   * Removes an image, unless it is held or was requested within `minIdleMs`. Lookups wait for the
   * removal.
   * @returns Whether it was removed.
   */
  async removeIdle(id: string, minIdleMs: number, remove: () => Promise<void>): Promise<boolean> {
    if (this.getHeldIds().has(id) || (this.getIdleMs().get(id) ?? minIdleMs) < minIdleMs)
      return false;
    this.removals += 1;
    const removal = remove();
    const over = (): void => void (this.removal = undefined);
    this.removal = removal.then(over, over);
    await removal;
    this.requestedAt.delete(id);
    return true;
  }

  private hold(containerId: ContainerId, held: HeldImage): void {
    this.expire();
    this.held.set(containerId, held);
  }

  private expire(): void {
    const before = this.options.clock.now() - MAX_HOLD_MS;
    for (const [containerId, { since, isStarting }] of this.held) {
      if (!isStarting && since < before) this.held.delete(containerId);
    }
  }

  private async fetch(
    { image = '', imagePull = 'ifNotPresent' }: ContainerRequest,
    waiter: PullWaiter,
  ): Promise<string> {
    if (waiter.signal.aborted) throw new StoppedError(waiter.signal.reason);
    if (imagePull === 'always') return this.pull(image, false, waiter);
    if (imagePull === 'ifNotPresent' && this.pulls.isPullingMissing(image))
      return this.pull(image, true, waiter);
    const found = await this.findImage(image);
    if (found !== undefined) return found;
    if (imagePull === 'never') {
      throw new CloudlessError(
        'precondition',
        `image ${image} is not on this node, and image_pull.policy is NEVER`,
      );
    }
    return this.pull(image, true, waiter);
  }

  private async pull(image: string, missing: boolean, waiter: PullWaiter): Promise<string> {
    const id = await this.pulls.pullOrJoin(image, missing, waiter);
    this.recordRequest(id);
    return id;
  }

  /** Records a request for the image, which protects it for a while: long enough to hold it. */
  private recordRequest(id: string): void {
    this.requestedAt.set(id, this.options.clock.now());
  }

  /**
   * Returns the id of an image; undefined when it is missing. Concurrent callers share one call, so
   * that all of them report the same pull.
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
      const before = this.removals;
      const found = await this.readImageId(image);
      if (before !== this.removals) continue;
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
