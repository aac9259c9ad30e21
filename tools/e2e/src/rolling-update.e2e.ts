import { request } from 'node:http';
import { ReplicaStatus_Phase, type EndpointSet } from '@cloudless/api';
import { sleep } from '@cloudless/base';
import { systemClock } from '@cloudless/system';
import { RealCluster, SERVER_COMMAND } from './cluster.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start();
});
afterAll(() => cluster.stop());

const PERIOD_MS = 10;

/** A client that knows its servers from the endpoints watch and makes a new connection for each request. */
class EndpointClient {
  lowestReady = Number.POSITIVE_INFINITY;
  readonly failures: string[] = [];
  readonly answeredBy = new Set<string>();
  requests = 0;
  private set: EndpointSet | undefined;
  private readonly stopping = new AbortController();
  private readonly work: Promise<unknown>[] = [];

  async start(name: string): Promise<void> {
    const sets = cluster.client.watchEndpoints({ name }, { signal: this.stopping.signal })[Symbol.asyncIterator]();
    this.see((await sets.next()).value as EndpointSet);
    this.work.push(this.watch(sets), this.send());
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.allSettled(this.work);
  }

  private see(set: EndpointSet): void {
    this.set = set;
    this.lowestReady = Math.min(this.lowestReady, set.readyReplicas);
  }

  private async watch(sets: AsyncIterator<EndpointSet>): Promise<void> {
    for (let item = await sets.next(); item.done !== true; item = await sets.next()) this.see(item.value);
  }

  private async send(): Promise<void> {
    const pending = new Set<Promise<void>>();
    for (let count = 0; !this.stopping.signal.aborted; count += 1) {
      const { endpoints = [] } = this.set ?? {};
      const endpoint = endpoints[count % Math.max(1, endpoints.length)];
      const answer = endpoint === undefined ? this.fail('no endpoint') : this.ask(endpoint.port);
      pending.add(answer);
      void answer.finally(() => pending.delete(answer));
      await sleep(systemClock, PERIOD_MS, this.stopping.signal).catch(() => undefined);
    }
    await Promise.all(pending);
  }

  private fail(why: string): Promise<void> {
    this.failures.push(why);
    return Promise.resolve();
  }

  private ask(port: number): Promise<void> {
    this.requests += 1;
    return new Promise((resolve) => {
      const failed = (reason: Error): void => {
        this.failures.push(`port ${port}: ${reason.message}`);
        resolve();
      };
      request({ host: '127.0.0.1', port, agent: false }, (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (text: string) => (body += text));
        response.once('error', failed);
        response.once('end', () => {
          this.answeredBy.add(body);
          resolve();
        });
      })
        .once('error', failed)
        .end();
    });
  }
}

describe('a rolling update under load', () => {
  it('fails no request of a client that follows the endpoints, and keeps min_available ready', async () => {
    const spec = {
      command: SERVER_COMMAND,
      ports: [{ name: 'http', containerPort: 80 }],
      replicas: 5,
      rollout: { minAvailable: 4 },
    };
    await cluster.client.createWorkload({ name: 'web', spec });
    const before = await cluster.settled('web');
    const client = new EndpointClient();
    await client.start('web');
    await cluster.client.updateWorkload({ name: 'web', spec: { env: { VERSION: '2' } } });
    const after = await cluster.settled('web');
    await client.stop();
    expect(client.failures).toEqual([]);
    expect(client.lowestReady).toBeGreaterThanOrEqual(4);
    const old = before.status!.replicas.map(({ id }) => id);
    expect(after.status!.replicas.filter(({ id, phase }) => old.includes(id) && phase !== ReplicaStatus_Phase.STOPPED)).toEqual(
      [],
    );
    // It did ask, before and after, so silence is no success.
    expect(client.requests).toBeGreaterThan(100);
    expect(old.some((id) => client.answeredBy.has(id))).toBe(true);
    expect(after.status!.replicas.some(({ id }) => client.answeredBy.has(id))).toBe(true);
  });
});
