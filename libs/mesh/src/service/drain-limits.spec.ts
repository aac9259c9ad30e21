import { create } from '@bufbuild/protobuf';
import { NetworkUpdateSchema } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { NetworkModel } from '../model/network-model.js';
import { anEndpoint } from '../testing/test-cluster.js';
import { DrainLimits } from './drain-limits.js';

describe('the drain timeout of a service of 10 s', () => {
  const begin = (loadBalancer = { drainTimeout: { seconds: 10n } }) => {
    const clock = new ManualClock();
    const model = new NetworkModel();
    const ended: string[] = [];
    const limits = new DrainLimits(clock, (id) => ended.push(id));
    const put = (leaving: boolean): void => {
      const endpoint = anEndpoint('web', 'r1', 'a', 80, { ready: false, leaving });
      const services = [{ namespace: 'default', name: 'web', loadBalancer }];
      const update = create(NetworkUpdateSchema, { services, endpoints: [endpoint] });
      limits.apply(model, model.apply(update));
    };
    return { clock, ended, limits, put };
  };

  it('ends connections to an endpoint 10 s after it began to leave', async () => {
    const { clock, ended, put } = begin();
    put(true);
    await clock.advance(6_000);
    put(true);
    await clock.advance(3_999);
    expect(ended).toEqual([]);
    await clock.advance(1);
    expect(ended).toEqual(['default/web/r1']);
    put(true);
    await clock.advance(60_000);
    expect(ended).toHaveLength(1);
  });

  it('leaves connections to an endpoint that is merely not ready', async () => {
    const { clock, ended, put } = begin();
    put(false);
    await clock.advance(60_000);
    expect(ended).toEqual([]);
  });

  it('begins again for an endpoint that stayed after all and leaves later', async () => {
    const { clock, ended, put } = begin();
    put(true);
    await clock.advance(9_000);
    put(false);
    await clock.advance(9_000);
    put(true);
    await clock.advance(9_999);
    expect(ended).toEqual([]);
    await clock.advance(1);
    expect(ended).toHaveLength(1);
  });

  it('does not limit anything when the service has none', async () => {
    const { clock, ended, put } = begin({ drainTimeout: { seconds: 0n } });
    put(true);
    await clock.advance(86_400_000);
    expect(ended).toEqual([]);
  });
});
