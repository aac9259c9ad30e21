import { systemClock } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCluster } from '../testing/index.js';
import { EtcdClient, MAX_CALLS_IN_FLIGHT, READ, RENEW } from './etcd-client.js';

describeEtcd('a client of etcd with as many calls in flight as it allows', () => {
  let cluster: EtcdCluster;
  beforeAll(async () => (cluster = await EtcdCluster.start({ members: 1 })));
  afterAll(() => cluster.stop());

  it('renews a lease before a call that waits', async () => {
    const { endpoints } = cluster;
    const client = new EtcdClient({ endpoints, clock: systemClock, log: silentLog });
    const begun: string[] = [];
    let endReads = (): void => undefined;
    const allBegun = new Promise<void>((resolve) => (endReads = resolve));
    const read = async () => {
      if (begun.push('read') >= MAX_CALLS_IN_FLIGHT) endReads();
      await allBegun;
      return {};
    };
    const renew = () => {
      begun.push('renewal');
      return Promise.resolve({});
    };
    const reads = Array.from({ length: MAX_CALLS_IN_FLIGHT + 1 }, () => client.call(READ, read));
    await Promise.all([...reads, client.call(RENEW, renew)]);
    expect(begun).toHaveLength(MAX_CALLS_IN_FLIGHT + 2);
    expect(begun.at(-1)).toBe('read');
    client.close();
  });
});
