import { Code, createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { Health, HealthCheckResponse_ServingStatus as Status } from '@cloudless/api/grpc';
import { serversOfTest } from '../testing/fixture.js';
import { HealthState } from './health.js';

const open = serversOfTest(afterEach);
const COORDINATOR = 'cloudless.api.CoordinatorService';

async function aClient(health = new HealthState()) {
  const { url } = await open({ health });
  return { health, client: createClient(Health, createGrpcTransport({ baseUrl: url })) };
}

describe('health service', () => {
  it('reports a status for the server and each of its services, and NOT_FOUND for others', async () => {
    const { client, health } = await aClient();
    for (const service of ['', COORDINATOR])
      expect(await client.check({ service })).toMatchObject({ status: Status.SERVING });
    health.set('', 'notServing');
    expect(await client.check({})).toMatchObject({ status: Status.NOT_SERVING });
    expect(await client.check({ service: COORDINATOR })).toMatchObject({ status: Status.SERVING });
    await expect(client.check({ service: 'other' })).rejects.toMatchObject({ code: Code.NotFound });
  });

  it('keeps a status that was set before the server started', async () => {
    const health = new HealthState();
    health.set(COORDINATOR, 'notServing');
    const { client } = await aClient(health);
    expect(await client.check({ service: COORDINATOR })).toMatchObject({
      status: Status.NOT_SERVING,
    });
  });

  it('sends watchers the current status and each change until they cancel', async () => {
    const { client, health } = await aClient();
    const controller = new AbortController();
    const statuses = client
      .watch({ service: 'late' }, { signal: controller.signal })
      [Symbol.asyncIterator]();
    const next = async () =>
      ((await statuses.next()).value as { status: Status } | undefined)?.status;
    expect(await next()).toBe(Status.SERVICE_UNKNOWN);
    health.set('late', 'serving');
    expect(await next()).toBe(Status.SERVING);
    health.set('other', 'serving'); // a change of another service is not sent
    health.setAll('notServing');
    expect(await next()).toBe(Status.NOT_SERVING);
    controller.abort();
    await expect(statuses.next()).rejects.toMatchObject({ code: Code.Canceled });
  });
});
