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
  isUnreadable,
  Pulls,
  unreadable,
  type PullRecorder,
  type PullWaiter,
} from '../images/pulls.js';

/** Needs of {@link Images}. */
export interface ImagesOptions {
  readonly client: CriClient;
  readonly clock: Clock;
  readonly record: PullRecorder;
}

/** The image of a container that is not made yet. */
interface Held {
  readonly image: string;
  readonly id: string;
  readonly since: number;
  isStarting: boolean;
}

/** An image that was fetched for a start that never came is let go after this. */
const HELD_MS = 10 * 60_000;
const unheard: PullWaiter = { progress: () => undefined, signal: new AbortController().signal };

/** Images for starts: fetched by policy, and held until the container that needs them is there. */
export class Images {
  private readonly held = new Map<ContainerId, Held>();
  private readonly finding = new Map<string, Promise<string | undefined>>();
  private readonly pulls: Pulls;
  /** When each image was last wanted, by the clock that never goes back. */
  private readonly wanted = new Map<string, number>();
  private removal: Promise<void> | undefined;
  private removals = 0;

  constructor(private readonly options: ImagesOptions) {
    this.pulls = new Pulls(options);
  }

  /** What {@link ContainerRuntime.prepare} says. */
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
   * The image of a container that is being made: what was prepared, or else fetched now. Held until
   * {@link Images.release}.
   * @returns What the runtime calls it.
   */
  async resolve(request: ContainerRequest): Promise<string> {
    const { containerId, image = '' } = request;
    const prepared = this.held.get(containerId);
    if (prepared?.image === image) {
      prepared.isStarting = true;
      return prepared.id;
    }
    const id = await this.fetch(request, unheard);
    this.hold(containerId, { image, id, since: this.options.clock.now(), isStarting: true });
    return id;
  }

  /** The container is there, or will not be. */
  release(containerId: ContainerId): void {
    this.held.delete(containerId);
  }

  /** What containers that are not there yet need. */
  heldIds(): ReadonlySet<string> {
    this.expire();
    return new Set([...this.held.values()].map(({ id }) => id));
  }

  /**
   * For how long nobody has wanted each image, in milliseconds; those that nobody ever wanted are
   * absent.
   */
  idleMs(): ReadonlyMap<string, number> {
    const now = this.options.clock.now();
    return new Map([...this.wanted].map(([id, atMs]) => [id, now - atMs]));
  }

  /**
   * Removes an image, unless it is held or was wanted just now; nobody finds it meanwhile.
   * @returns Whether it was removed.
   */
  async removeIdle(id: string, minIdleMs: number, remove: () => Promise<void>): Promise<boolean> {
    if (this.heldIds().has(id) || (this.idleMs().get(id) ?? minIdleMs) < minIdleMs) return false;
    this.removals += 1;
    const removal = remove();
    const over = (): void => void (this.removal = undefined);
    this.removal = removal.then(over, over);
    await removal;
    this.wanted.delete(id);
    return true;
  }

  private hold(containerId: ContainerId, held: Held): void {
    this.expire();
    this.held.set(containerId, held);
  }

  private expire(): void {
    const before = this.options.clock.now() - HELD_MS;
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
    if (imagePull === 'ifNotPresent' && this.pulls.isMissing(image))
      return this.pull(image, true, waiter);
    const found = await this.find(image);
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
    const id = await this.pulls.wait(image, missing, waiter);
    this.want(id);
    return id;
  }

  /** From here on it is not removed for a while: time enough to hold it. */
  private want(id: string): void {
    this.wanted.set(id, this.options.clock.now());
  }

  /** All who ask at the same time share one answer, so that all of them see the same pull begin. */
  private find(image: string): Promise<string | undefined> {
    const running = this.finding.get(image);
    if (running !== undefined) return running;
    const finding = this.findNow(image).finally(() => this.finding.delete(image));
    this.finding.set(image, finding);
    return finding;
  }

  /** An answer that was given while an image was being removed says nothing. */
  private async findNow(image: string): Promise<string | undefined> {
    for (;;) {
      while (this.removal !== undefined) await this.removal;
      const before = this.removals;
      const found = await this.status(image);
      if (before !== this.removals) continue;
      if (found !== undefined) this.want(found);
      return found;
    }
  }

  private async status(image: string): Promise<string | undefined> {
    try {
      const answer = await this.options.client.quickImage('ImageStatus', (calls, signal) =>
        calls.imageStatus({ image: { image } }, { signal }),
      );
      return answer.image?.id;
    } catch (reason) {
      throw isUnreadable(reason) ? unreadable(image, reason) : reason;
    }
  }
}
