import {
  definedFields,
  CloudlessError,
  sleep,
  StoppedError,
  type Clock,
  type StopSignal,
} from '@cloudless/base';
import type { ContainerRequest, StartProgress } from '../container-runtime.js';

/** Image that is not on the fake machine yet. */
export interface FakeImage {
  /** Duration of the pull, milliseconds. Default 0. */
  readonly pullMs?: number;
  readonly sizeBytes?: number;
  /** Error with which the pull fails after `pullMs`. */
  readonly failure?: CloudlessError;
}

/** Images of a fake machine. Images that are not set are present. */
export class FakeImages {
  private readonly known = new Map<string, { readonly image: FakeImage; present: boolean }>();
  private readonly pulls: string[] = [];

  constructor(private readonly clock: Clock) {}

  /** Images whose pull has begun, in order. */
  get pulled(): readonly string[] {
    return this.pulls;
  }

  /** Removes an image from the machine: the next start has to pull it. */
  set(name: string, image: FakeImage = {}): void {
    this.known.set(name, { image, present: false });
  }

  /** Pulls the image of a request if necessary. */
  async ensure(
    { image: name, imagePull = 'ifNotPresent' }: Pick<ContainerRequest, 'image' | 'imagePull'>,
    progress: (step: StartProgress) => void,
    signal: StopSignal,
  ): Promise<void> {
    const known = name === undefined ? undefined : this.known.get(name);
    if (name === undefined || known === undefined) return;
    if (known.present && imagePull !== 'always') return;
    if (imagePull === 'never')
      throw new CloudlessError(
        'precondition',
        `image ${name} is not on this node, and is never pulled`,
      );
    const { pullMs: tookMs = 0, sizeBytes, failure } = known.image;
    this.pulls.push(name);
    progress({ kind: 'pulling', image: name });
    if (tookMs > 0) await sleep(this.clock, tookMs, signal);
    if (signal.aborted) throw new StoppedError();
    if (failure !== undefined) {
      progress({ kind: 'pullFailed', image: name, tookMs, reason: failure.message });
      throw failure;
    }
    known.present = true;
    progress({
      kind: 'pulled',
      image: name,
      tookMs,
      ...definedFields({ sizeBytes }),
    });
  }
}
