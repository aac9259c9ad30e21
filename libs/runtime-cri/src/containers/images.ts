import { CloudlessError, errorKindOf, errorMessageOf } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';

/** Images of the runtime; each is pulled once however many ask for it at the same time. */
export class Images {
  private readonly pulling = new Map<string, Promise<string>>();

  constructor(private readonly client: CriClient) {}

  /**
   * Pulls an image unless it is there, so that a registry that is away stops no image that is.
   * @returns What the runtime calls it.
   * @throws kind `invalid` for what is no image reference, `precondition` with the registry's text when it cannot be pulled.
   */
  async ensure(image: string): Promise<string> {
    const running = this.pulling.get(image);
    if (running !== undefined) return running;
    const pull = this.find(image).then((found) => found ?? this.pull(image));
    this.pulling.set(image, pull);
    try {
      return await pull;
    } finally {
      this.pulling.delete(image);
    }
  }

  private async find(image: string): Promise<string | undefined> {
    try {
      const answer = await this.client.image('ImageStatus', (calls, signal) =>
        calls.imageStatus({ image: { image } }, { signal }),
      );
      return answer.image?.id;
    } catch (reason) {
      throw isUnreadable(reason) ? unreadable(image, reason) : reason;
    }
  }

  private async pull(image: string): Promise<string> {
    try {
      const { imageRef } = await this.client.image('PullImage', (calls, signal) =>
        calls.pullImage({ image: { image } }, { signal }),
      );
      return imageRef;
    } catch (reason) {
      if (isUnreadable(reason)) throw unreadable(image, reason);
      if (errorKindOf(reason) === 'unavailable' && !/pull|resolve|registry|dial tcp/i.test(errorMessageOf(reason))) throw reason;
      throw new CloudlessError('precondition', `image ${image} cannot be pulled: ${errorMessageOf(reason)}`, { cause: reason });
    }
  }
}

function isUnreadable(reason: unknown): boolean {
  return (
    errorKindOf(reason) === 'invalid' ||
    /invalid reference format|failed to parse (?:image )?reference/i.test(errorMessageOf(reason))
  );
}

function unreadable(image: string, cause: unknown): CloudlessError {
  return new CloudlessError('invalid', `image: ${JSON.stringify(image)} is no image reference`, { cause });
}
