import type { ExtraHost } from '@cloudless/runtime';

/** Path of the hosts file in a container. */
export const HOSTS_PATH = '/etc/hosts';

/** First lines of every hosts file, as container engines write them. */
const LOCAL_LINES = [
  '127.0.0.1\tlocalhost',
  '::1\tlocalhost ip6-localhost ip6-loopback',
  'fe00::\tip6-localnet',
  'ff00::\tip6-mcastprefix',
  'ff02::1\tip6-allnodes',
  'ff02::2\tip6-allrouters',
];
/** Address of a name without another address, as Debian assigns it. */
const OWN_NAME_ADDRESS = '127.0.1.1';

/** Host name and address of a container. */
export interface OwnName {
  readonly hostname: string;
  /** Empty when the sandbox has no address: the name then resolves to loopback. */
  readonly ip: string;
}

/**
 * The hosts file of a container in a network of its own.
 * @see hosts(5): an address, then the canonical name and its aliases; the first line that has a
 *   name counts.
 */
export function toPodHosts({ hostname, ip }: OwnName, extraHosts: readonly ExtraHost[]): string {
  return toText([
    ...LOCAL_LINES,
    `${ip === '' ? OWN_NAME_ADDRESS : ip}\t${hostname}`,
    ...toLines(extraHosts),
  ]);
}

/**
 * The hosts file of a container in the network of the node: the hosts file of the node, so that
 * both resolve alike, followed by the extra hosts. The name of the node is added where its file
 * lacks the name, as a container cannot resolve it otherwise.
 * @param nodeHosts - Text of the node's file; undefined when the node has no file.
 */
export function toNodeHosts(
  nodeHosts: string | undefined,
  hostname: string,
  extraHosts: readonly ExtraHost[],
): string {
  const lines = nodeHosts === undefined ? LOCAL_LINES : nodeHosts.replace(/\n+$/, '').split('\n');
  const own = lines.some((line) => parseNames(line).includes(hostname))
    ? []
    : [`${OWN_NAME_ADDRESS}\t${hostname}`];
  return toText([...lines, ...own, ...toLines(extraHosts)]);
}

function parseNames(line: string): readonly string[] {
  return line.replace(/#.*$/, '').trim().split(/\s+/).slice(1);
}

function toLines(extraHosts: readonly ExtraHost[]): readonly string[] {
  return extraHosts.map(({ ip, hostnames }) => `${ip}\t${hostnames.join(' ')}`);
}

function toText(lines: readonly string[]): string {
  return `${lines.join('\n')}\n`;
}
