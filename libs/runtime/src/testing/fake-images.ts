import {
  definedFields,
  CloudlessError,
  sleep,
  StoppedError,
  type Clock,
  type StopSignal,
} from '@cloudless/base';
import type { ContainerRequest, StartProgress } from '../container-runtime.js';

/** An image that is not on the fake machine yet. */
export interface FakeImage {
  /** Duration of the pull, milliseconds. Default 0. */
  readonly pullMs?: number;
  readonly sizeBytes?: number;
  /** Error with which the pull fails after `pullMs`. */
  readonly failure?: CloudlessError;
}

/** The images of a fake machine. Every image is present unless {@link set} removed it. */
export class FakeImages {
  private readonly known = new Map<string, { readonly image: FakeImage; present: boolean }>();
  private readonly pulls: string[] = [];

  constructor(private readonly clock: Clock) {}

  /** Names of the images whose pull has begun, in order. */
  get pulled(): readonly string[] {
    return this.pulls;
  }

  /** Removes an image from the machine, so that the next start has to pull it. */
  set(name: string, image: FakeImage = {}): void {
    this.known.set(name, { image, present: false });
  }

  /**
   * Pulls the image of a request if it is not present or the pull policy is `always`.
   * @throws kind `precondition` for a missing image under policy `never`; the failure of the image.
   */
  async ensure(
    { image: name, imagePull = 'ifNotPresent' }: Pick<ContainerRequest, 'image' | 'imagePull'>,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    const entry = name === undefined ? undefined : this.known.get(name);
    if (name === undefined || entry === undefined) return;
    if (entry.present && imagePull !== 'always') return;
    if (imagePull === 'never')
      throw new CloudlessError(
        'precondition',
        `image ${name} is not on this node, and is never pulled`,
      );
    const { pullMs: tookMs = 0, sizeBytes, failure } = entry.image;
    this.pulls.push(name);
    progress({ kind: 'pulling', image: name });
    if (tookMs > 0) await sleep(this.clock, tookMs, signal);
    if (signal.aborted) throw new StoppedError();
    if (failure !== undefined) {
      progress({ kind: 'pullFailed', image: name, tookMs, reason: failure.message });
      throw failure;
    }
    entry.present = true;
    progress({
      kind: 'pulled',
      image: name,
      tookMs,
      ...definedFields({ sizeBytes }),
    });
  }
}
