import { readFileSync } from 'node:fs';

const ROUTES_FILE = '/proc/net/route';
/** Netmask of a single address, as in the file. */
const HOST_MASK = 'FFFFFFFF';
const NO_GATEWAY = '00000000';

/**
 * Returns the addresses that have a route of their own to an interface whose other end is in another
 * network namespace: those of containers in a network without a bridge.
 * @param routes - Content of `/proc/net/route`.
 */
export function listContainerAddresses(
  routes: string = readFile(ROUTES_FILE),
  isPaired: (interfaceName: string) => boolean = hasOtherEnd,
): readonly string[] {
  return routes.split('\n').flatMap((line) => {
    const [name = '', destination = '', gateway, , , , , mask] = line.split('\t');
    if (gateway !== NO_GATEWAY || mask?.trim() !== HOST_MASK || !isPaired(name)) return [];
    return [[...Buffer.from(destination, 'hex').reverse()].join('.')];
  });
}

function hasOtherEnd(interfaceName: string): boolean {
  const read = (file: string): string => readFile(`/sys/class/net/${interfaceName}/${file}`).trim();
  return read('iflink') !== read('ifindex');
}

function readFile(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
