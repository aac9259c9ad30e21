import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { readProcess } from '../system/host-processes.js';
import { readDnsServers } from './dns-servers.js';
import { EgressFilter } from './egress-filter.js';

const own = readProcess(process.pid)!;

describe('EgressFilter.apply', () => {
  it.each([
    {
      name: 'the process of the sandbox has ended',
      sandbox: { ...own, pid: 2 ** 30 },
      expectedText: 'the sandbox of the container has ended',
    },
    {
      name: 'its id belongs to another process',
      sandbox: { ...own, startToken: '1' },
      expectedText: 'the sandbox of the container has ended',
    },
    {
      name: 'the process is in the network of the agent',
      sandbox: own,
      expectedText: 'the sandbox of the container is in the network of the agent',
    },
  ])('rejects when $name', async ({ sandbox, expectedText }) => {
    await expect(new EgressFilter().apply(sandbox, [])).rejects.toMatchObject({
      kind: 'precondition',
      message: `network.egress: ${expectedText}`,
    });
  });

  it('rejects a rule that is not valid', async () => {
    await expect(new EgressFilter().apply(own, [{ network: 'all' }])).rejects.toMatchObject({
      kind: 'invalid',
    });
  });
});

describe('readDnsServers', () => {
  it('returns the name servers of the file, and none without a file', async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'cloudless-dns-'));
    const file = path.join(directory, 'resolv.conf');
    writeFileSync(
      file,
      '# nameserver 192.0.2.1\nsearch example.com\nnameserver 192.0.2.2\nnameserver\t2001:db8::53 # second\nnameserver fe80::1%eth0\nnameserver\n',
    );
    expect(await readDnsServers(file)).toEqual(['192.0.2.2', '2001:db8::53', 'fe80::1']);
    rmSync(directory, { recursive: true });
    expect(await readDnsServers(file)).toEqual([]);
  });
});
