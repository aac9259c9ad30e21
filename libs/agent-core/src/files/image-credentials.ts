import { CloudlessError } from '@cloudless/base';
import type { ImageCredentials } from '@cloudless/runtime';

/** Registry of images whose name has no registry, and its other names. */
const DEFAULT_REGISTRY = 'docker.io';
const DEFAULT_REGISTRY_NAMES = ['docker.io', 'index.docker.io', 'registry-1.docker.io'];
const DOCKER_CONFIG = '.dockerconfigjson';

/**
 * Reads the credentials for an image from the secret that `image_pull.secret` names: the keys
 * `username`, `password` and, when they are for one registry only, `server`; or `.dockerconfigjson`,
 * as `docker login` writes the file.
 * @throws kind `precondition` when the secret has neither, or nothing for the registry of the image.
 *   The message contains no value.
 */
export function toImageCredentials(
  secret: string,
  image: string,
  data: ReadonlyMap<string, Uint8Array>,
): ImageCredentials {
  const read = (key: string): string | undefined => {
    const value = data.get(key);
    return value === undefined ? undefined : new TextDecoder().decode(value).replace(/\r?\n$/, '');
  };
  const registry = toRegistry(image);
  const config = read(DOCKER_CONFIG);
  if (config !== undefined) return fromDockerConfig(secret, registry, config);
  const [username, password, server] = [read('username'), read('password'), read('server')];
  if (username === undefined || password === undefined)
    throw refuse(secret, `needs the keys username and password, or ${DOCKER_CONFIG}`);
  if (server !== undefined && server !== '' && toHost(server) !== registry)
    throw refuse(secret, `is for the registry ${toHost(server)}, and the image is at ${registry}`);
  return { username, password };
}

/**
 * Returns the registry of an image.
 * @see distribution/reference: the part before the first `/`, when it has a `.` or `:` or is
 *   `localhost`
 */
function toRegistry(image: string): string {
  const [first = '', ...rest] = image.split('/');
  const isHost = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost');
  return isHost ? toHost(first) : DEFAULT_REGISTRY;
}

/** Returns the host and port of an address such as `https://index.docker.io/v1/`. */
function toHost(address: string): string {
  const host = address.replace(/^https?:\/\//, '').split('/')[0] ?? '';
  return DEFAULT_REGISTRY_NAMES.includes(host) ? DEFAULT_REGISTRY : host;
}

function fromDockerConfig(secret: string, registry: string, text: string): ImageCredentials {
  let auths: unknown;
  try {
    auths = (JSON.parse(text) as { readonly auths?: unknown } | null)?.auths;
  } catch {
    throw refuse(secret, `has no JSON in ${DOCKER_CONFIG}`);
  }
  const entries = typeof auths === 'object' && auths !== null ? Object.entries(auths) : [];
  const [, entry] = entries.find(([address]) => toHost(address) === registry) ?? [];
  if (entry === undefined)
    throw refuse(secret, `has nothing for the registry ${registry} in ${DOCKER_CONFIG}`);
  const { username, password, auth } = entry as Readonly<Record<string, unknown>>;
  if (typeof username === 'string' && typeof password === 'string') return { username, password };
  const decoded = typeof auth === 'string' ? Buffer.from(auth, 'base64').toString() : '';
  const end = decoded.indexOf(':');
  if (end > 0) return { username: decoded.slice(0, end), password: decoded.slice(end + 1) };
  throw refuse(secret, `has no user name and password for ${registry} in ${DOCKER_CONFIG}`);
}

function refuse(secret: string, problem: string): CloudlessError {
  return new CloudlessError('precondition', `spec.image_pull.secret: secret ${secret} ${problem}`);
}
