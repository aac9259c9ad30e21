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
/** Address of a host name without another address, as Debian assigns to the name of a machine. */
const OWN_NAME_ADDRESS = '127.0.1.1';

/** Host name and address of a container. */
export interface ContainerName {
  readonly hostname: string;
  /** Empty when the sandbox has no address: the name then resolves to loopback. */
  readonly ip: string;
}

/**
 * Returns the hosts file of a container in a network of its own: localhost, the container's name,
 * then the extra hosts.
 * @see hosts(5): an address, then the canonical name and its aliases; for a name in several lines,
 *   the first line counts
 */
export function toPodHosts(
  { hostname, ip }: ContainerName,
  extraHosts: readonly ExtraHost[],
): string {
  return toText([
    ...LOCAL_LINES,
    `${ip === '' ? OWN_NAME_ADDRESS : ip}\t${hostname}`,
    ...toLines(extraHosts),
  ]);
}

/**
 * Returns the hosts file of a container in the network of the node: the hosts file of the node, so
 * that names resolve alike on the node and in the container, followed by the extra hosts. When the
 * file of the node lacks the name of the node, the name is added, because the container cannot
 * resolve it otherwise.
 * @param nodeHosts - Text of the node's hosts file; undefined when the node has no hosts file.
 * @param hostname - Name of the node.
 */
export function toNodeHosts(
  nodeHosts: string | undefined,
  hostname: string,
  extraHosts: readonly ExtraHost[],
): string {
  const lines = nodeHosts === undefined ? LOCAL_LINES : nodeHosts.replace(/\n+$/, '').split('\n');
  const nodeLine = lines.some((line) => parseNames(line).includes(hostname))
    ? []
    : [`${OWN_NAME_ADDRESS}\t${hostname}`];
  return toText([...lines, ...nodeLine, ...toLines(extraHosts)]);
}

/** Returns the names in a line, without its address and its comment. */
function parseNames(line: string): readonly string[] {
  return line.replace(/#.*$/, '').trim().split(/\s+/).slice(1);
}

function toLines(extraHosts: readonly ExtraHost[]): readonly string[] {
  return extraHosts.map(({ ip, hostnames }) => `${ip}\t${hostnames.join(' ')}`);
}

function toText(lines: readonly string[]): string {
  return `${lines.join('\n')}\n`;
}
