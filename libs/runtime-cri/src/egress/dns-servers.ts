import { readFile } from 'node:fs/promises';

/** File with the DNS servers of the machine, which containerd copies to containers. */
const RESOLV_CONF = '/etc/resolv.conf';

/**
 * Reads the addresses of the DNS servers of the machine; none when the file is missing.
 * @see resolv.conf(5)
 */
export async function readDnsServers(file = RESOLV_CONF): Promise<readonly string[]> {
  const text = await readFile(file, 'utf8').catch(() => '');
  return text.split('\n').flatMap((line) => {
    const [, address = ''] = /^\s*nameserver\s+([^\s#;%]+)/.exec(line) ?? [];
    return address === '' ? [] : [address];
  });
}
