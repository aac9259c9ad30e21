import { create } from '@bufbuild/protobuf';
import { ServiceRecordSchema } from '@cloudless/api/store';
import { TestBed } from '../testing/test-bed.js';
import { NetworkSettings, type WantedNetworkSettings } from './network-settings.js';

describe('NetworkSettings', () => {
  let bed: TestBed;
  beforeEach(async () => {
    bed = await TestBed.open();
  });
  afterEach(() => bed.close());

  async function start(wanted: WantedNetworkSettings): Promise<NetworkSettings> {
    const settings = new NetworkSettings(bed, wanted);
    await bed.advance(10);
    await settings.close();
    return settings;
  }
  const stored = () => bed.state.view().networkSettings()?.value;

  it('stores the defaults in a new cluster', async () => {
    await start({});
    expect(stored()).toMatchObject({
      serviceCidr: '10.96.0.0/16',
      clusterDomain: 'cloudless.internal',
    });
  });

  it('keeps what is stored unless the operator wants something else', async () => {
    await start({ serviceCidr: '10.97.0.0/16', clusterDomain: 'a.test' });
    await start({});
    expect(stored()).toMatchObject({ serviceCidr: '10.97.0.0/16', clusterDomain: 'a.test' });
    const settings = await start({ serviceCidr: '10.98.0.0/16' });
    expect(stored()).toMatchObject({ serviceCidr: '10.98.0.0/16', clusterDomain: 'a.test' });
    expect(settings.listWarnings()).toEqual([]);
  });

  it('keeps the range and the domain while a service has an address and a name, and says so', async () => {
    await start({});
    const service = create(ServiceRecordSchema, {
      ...{ namespace: 'default', name: 'web', clusterIp: '10.96.0.20' },
    });
    await bed.state.commitObserved(bed.state.transaction().put('service', 'default/web', service));
    const settings = await start({ serviceCidr: '10.98.0.0/16', clusterDomain: 'b.test' });
    expect(stored()).toMatchObject({
      serviceCidr: '10.96.0.0/16',
      clusterDomain: 'cloudless.internal',
    });
    expect(settings.listWarnings()).toEqual([
      expect.stringContaining('services have addresses of 10.96.0.0/16'),
      expect.stringContaining('--cluster-domain b.test is not in use: services have names below'),
    ]);
  });

  it('keeps the domain while a service without an address has a name', async () => {
    await start({ clusterDomain: 'a.test' });
    const service = create(ServiceRecordSchema, { namespace: 'default', name: 'web' });
    await bed.state.commitObserved(bed.state.transaction().put('service', 'default/web', service));
    const settings = await start({ serviceCidr: '10.98.0.0/16', clusterDomain: 'b.test' });
    expect(stored()).toMatchObject({ serviceCidr: '10.98.0.0/16', clusterDomain: 'a.test' });
    expect(settings.listWarnings()).toHaveLength(1);
    await bed.state.commitObserved(bed.state.transaction().delete('service', 'default/web'));
    await start({ clusterDomain: 'b.test' });
    expect(stored()).toMatchObject({ clusterDomain: 'b.test' });
  });
});
