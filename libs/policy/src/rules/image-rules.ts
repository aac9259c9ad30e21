import type { RuleConfigs } from '../model.js';
import { show } from './config-reader.js';
import { SATISFIED, type RuleDefinition } from './rule-definition.js';

/** Registry of images whose reference names none. */
const DEFAULT_REGISTRY = 'docker.io';
/** Form of an allowed or denied registry: a host, `*.` and a host, each with or without a path. */
const REGISTRY =
  /^(\*\.)?([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]+)?(\/[a-z0-9][a-z0-9._/-]*)?$/;

/** Registry and repository of the image. */
export const imageRegistry: RuleDefinition<'IMAGE_REGISTRY'> = {
  needsContainer: true,
  read: (reader) => {
    const options = {
      isAllowed: (text: string) => REGISTRY.test(text) && !text.endsWith('/'),
      expected: 'registries such as registry.example:5000, *.example.com or docker.io/library',
    };
    const config = {
      ...reader.texts('allowed', options),
      ...reader.texts('denied', options),
      ...reader.switch('requireDigest'),
    };
    reader.requireOneOf('allowed', 'denied', 'requireDigest');
    return config;
  },
  create: (config) => {
    const allowed = config.allowed?.map(toPattern);
    const denied = config.denied?.map(toPattern) ?? [];
    return ({ spec }) => {
      const problem = findProblem(spec.image, config, allowed, denied);
      return problem === undefined
        ? SATISFIED
        : [{ field: 'spec.image', found: show(spec.image), allowed: problem }];
    };
  },
};

type ImageConfig = RuleConfigs['IMAGE_REGISTRY'];

function findProblem(
  image: string,
  config: ImageConfig,
  allowed: readonly RegistryPattern[] | undefined,
  denied: readonly RegistryPattern[],
): string | undefined {
  const repository = parseRepository(image);
  if (denied.some((pattern) => matchesRegistry(pattern, repository)))
    return `an image that is not from ${(config.denied ?? []).join(', ')}`;
  if (allowed !== undefined && !allowed.some((pattern) => matchesRegistry(pattern, repository)))
    return `an image from ${(config.allowed ?? []).join(', ')}`;
  if (config.requireDigest === true && !image.includes('@'))
    return 'an image with a digest (@sha256:…)';
  return undefined;
}

/** A repository as container runtimes resolve a reference. */
interface Repository {
  /** Host in lower case, without the default port of HTTPS. */
  readonly host: string;
  readonly path: string;
}

/**
 * Returns the repository of an image reference.
 * @see github.com/distribution/reference, `normalize.go`, `splitDockerDomain`
 */
export function parseRepository(image: string): Repository {
  const [withTag = ''] = image.split('@');
  const slash = withTag.indexOf('/');
  const first = withTag.slice(0, Math.max(slash, 0));
  const isHost =
    slash > 0 && (/[.:]/.test(first) || first === 'localhost' || first !== first.toLowerCase());
  const rest = isHost ? withTag.slice(slash + 1) : withTag;
  const host = normalizeHost(isHost ? first : DEFAULT_REGISTRY);
  const path = rest.replace(/:[^/:]*$/, '');
  return {
    host,
    path: host === DEFAULT_REGISTRY && !path.includes('/') ? `library/${path}` : path,
  };
}

function normalizeHost(host: string): string {
  const lower = host.toLowerCase().replace(/:443$/, '');
  return ['index.docker.io', 'registry-1.docker.io'].includes(lower) ? DEFAULT_REGISTRY : lower;
}

interface RegistryPattern extends Repository {
  /** The pattern stands for every host below `host`. */
  readonly isWildcard: boolean;
}

function toPattern(text: string): RegistryPattern {
  const isWildcard = text.startsWith('*.');
  const [host = '', ...path] = (isWildcard ? text.slice(2) : text).split('/');
  return { host: normalizeHost(host), path: path.join('/'), isWildcard };
}

function matchesRegistry(pattern: RegistryPattern, { host, path }: Repository): boolean {
  const isHost = pattern.isWildcard ? host.endsWith(`.${pattern.host}`) : host === pattern.host;
  return (
    isHost && (pattern.path === '' || path === pattern.path || path.startsWith(`${pattern.path}/`))
  );
}
