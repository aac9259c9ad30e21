import { ManualClock } from '@cloudless/base/testing';
import { ADDRESS_CHECK_MS, MachineAddresses } from './machine-addresses.js';

describe('MachineAddresses', () => {
  let listed: readonly string[] | Error;
  let cidr: string;
  let changes: (readonly string[])[];
  let clock: ManualClock;
  let addresses: MachineAddresses;

  beforeEach(() => {
    listed = ['192.168.1.4'];
    cidr = '10.96.0.0/16';
    changes = [];
    clock = new ManualClock();
    addresses = new MachineAddresses({
      list: () => {
        if (listed instanceof Error) throw listed;
        return listed;
      },
      serviceCidr: () => cidr,
      onChange: () => changes.push(addresses.current),
      clock,
    });
    addresses.start();
  });
  afterEach(() => addresses.close());

  it('follow addresses that come and go', async () => {
    listed = ['192.168.1.4', '172.16.0.9'];
    await clock.advance(ADDRESS_CHECK_MS);
    listed = ['172.16.0.9'];
    await clock.advance(ADDRESS_CHECK_MS);
    expect(changes).toEqual([['192.168.1.4', '172.16.0.9'], ['172.16.0.9']]);
  });

  it('are not reported again without a change', async () => {
    listed = ['192.168.1.4'];
    await clock.advance(3 * ADDRESS_CHECK_MS);
    expect([changes, addresses.current]).toEqual([[], ['192.168.1.4']]);
  });

  it('never contain a virtual address, even one that an interface has', async () => {
    listed = ['192.168.1.4', '10.96.0.20'];
    await clock.advance(ADDRESS_CHECK_MS);
    expect([changes, addresses.current]).toEqual([[], ['192.168.1.4']]);
  });

  it('lose the addresses of a range that becomes known later', () => {
    cidr = '192.168.0.0/16';
    addresses.refresh();
    expect(changes).toEqual([[]]);
  });

  it('stay as they are while they cannot be listed', async () => {
    listed = new Error('EACCES');
    await clock.advance(ADDRESS_CHECK_MS);
    expect([changes, addresses.current]).toEqual([[], ['192.168.1.4']]);
  });
});
