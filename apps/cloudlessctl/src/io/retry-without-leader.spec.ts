import { Code, ConnectError, createClient, createRouterTransport } from '@connectrpc/connect';
import { CoordinatorService, toConnectError, toLeaderMetadata } from '@cloudless/api';
import { CloudlessError, type ErrorReason } from '@cloudless/base';
import { withLeaderRetry } from './retry-without-leader.js';

/** Returns a client of a coordinator that refuses the first calls. */
function setUp(refusals: number, reason: ErrorReason = 'LEADERSHIP_LOST', retryMs = 60_000) {
  const seen = { calls: 0 };
  const transport = createRouterTransport(({ service }) =>
    service(CoordinatorService, {
      getServerInfo: () => {
        seen.calls += 1;
        if (seen.calls > refusals) return { epoch: 2n };
        throw toConnectError(
          new CloudlessError(reason, 'refused', { metadata: toLeaderMetadata({ epoch: 1n }) }),
        );
      },
    }),
  );
  const connection = withLeaderRetry(
    { transport, close: () => undefined },
    { retryMs, pauseMs: 1 },
  );
  return { client: createClient(CoordinatorService, connection.transport), seen };
}

describe('withLeaderRetry', () => {
  it('repeats a call until a coordinator leads', async () => {
    const { client, seen } = setUp(3);
    expect(await client.getServerInfo({})).toMatchObject({ epoch: 2n });
    expect(seen.calls).toBe(4);
  });

  it('gives up after its time', async () => {
    const { client, seen } = setUp(1_000, 'LEADERSHIP_LOST', 0);
    await expect(client.getServerInfo({})).rejects.toMatchObject({ code: Code.Unavailable });
    expect(seen.calls).toBe(1);
  });

  it('gives up at the deadline of the call', async () => {
    const { client } = setUp(1_000_000);
    const failure = await client.getServerInfo({}, { timeoutMs: 20 }).catch(ConnectError.from);
    expect(failure).toBeInstanceOf(ConnectError);
    expect([Code.Unavailable, Code.DeadlineExceeded]).toContain((failure as ConnectError).code);
  });

  it('repeats no call that failed for another reason, which may have been applied', async () => {
    const { client, seen } = setUp(1, 'STORE_UNAVAILABLE');
    await expect(client.getServerInfo({})).rejects.toMatchObject({ code: Code.Unavailable });
    expect(seen.calls).toBe(1);
  });

  it('ends when the call is cancelled', async () => {
    const { client } = setUp(1_000);
    const stop = new AbortController();
    const running = client.getServerInfo({}, { signal: stop.signal });
    setTimeout(() => stop.abort(), 5);
    await expect(running).rejects.toBeDefined();
  });
});
