import { once } from 'node:events';
import * as http2 from 'node:http2';
import { CoordinatorService, type AgentMessage, type CoordinatorMessage } from '@cloudless/api';
import { serversOfTest } from '../testing/fixture.js';
import { encodeHello, requestSession } from '../testing/session-messages.js';

const open = serversOfTest(afterEach);

/** More than the flow control window: the client waits while the server reads nothing. */
const LARGE_BODY = Buffer.alloc(300_000, encodeHello('x'.repeat(1_000)));

/**
 * Opens a stream whose handler ends the response after some messages, but does not end its
 * iterator.
 */
async function openAnsweredStream({ messagesBefore }: { readonly messagesBefore: number }) {
  let iterator: AsyncIterator<AgentMessage> | undefined;
  async function* answer(
    messages: AsyncIterable<AgentMessage>,
  ): AsyncGenerator<CoordinatorMessage> {
    iterator = messages[Symbol.asyncIterator]();
    for (let count = 0; count < messagesBefore; count += 1) await iterator.next();
  }
  const { url } = await open({
    registerRoutes: (router) => router.rpc(CoordinatorService.method.session, answer as never),
  });
  const session = http2.connect(url);
  const stream = requestSession(session);
  stream.resume().write(encodeHello('first'));
  await once(stream, 'end');
  const sendRest = async (): Promise<void> => {
    stream.end(LARGE_BODY);
    await once(stream, 'close');
    session.destroy();
  };
  return { stream, iterator, sendRest };
}

describe('the rest of a request body after the response', () => {
  it('is discarded when the handler reads no further', async () => {
    const { stream, iterator, sendRest } = await openAnsweredStream({ messagesBefore: 1 });
    await sendRest();
    expect(stream.rstCode).toBe(http2.constants.NGHTTP2_NO_ERROR);
    expect(await iterator?.next()).toEqual({ done: true, value: undefined });
  });

  it('is discarded when the handler ends its reading after the response', async () => {
    const { stream, iterator, sendRest } = await openAnsweredStream({ messagesBefore: 1 });
    await iterator?.return?.();
    await sendRest();
    expect(stream.rstCode).toBe(http2.constants.NGHTTP2_NO_ERROR);
  });

  it('is discarded when the handler begins its reading after the response', async () => {
    const { stream, iterator, sendRest } = await openAnsweredStream({ messagesBefore: 0 });
    const next = iterator?.next();
    await sendRest();
    expect(stream.rstCode).toBe(http2.constants.NGHTTP2_NO_ERROR);
    expect(await next).toEqual({ done: true, value: undefined });
  });
});
