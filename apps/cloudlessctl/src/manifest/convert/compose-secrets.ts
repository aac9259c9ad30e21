import { isMap, toText, withoutEmpty, SourceMap } from './source-map.js';

/** Directory of the secrets of a container in Compose: each secret is one file. */
const DIRECTORY = '/run/secrets';

/**
 * Reports the command that creates the secrets of a Compose file. They become the keys of one
 * secret, because the files of all are in one directory.
 * @param name - Name of that secret.
 */
export function reportSecrets(file: SourceMap, name: string): void {
  const secrets = file.takeMap('secrets');
  const options = secrets.keys.map((key) => {
    const secret = secrets.takeMap(key);
    const path = secret.takeText('file');
    const variable = secret.takeText('environment');
    secret.ignore('name', 'external', 'labels');
    secret.finish();
    if (path !== undefined) return `--from-file ${key}=${path}`;
    return variable === undefined
      ? `--prompt ${key}`
      : `--from-file ${key}=<(printf %s "$${variable}")`;
  });
  if (options.length > 0)
    file.note(
      'secrets',
      `create them with: cloudlessctl secret create ${name} ${options.join(' ')}`,
    );
}

/** Converts the secrets of a service to one reference, with the same paths in the container. */
export function convertServiceSecrets(
  service: SourceMap,
  name: string,
): readonly Record<string, unknown>[] {
  const keys: Record<string, unknown>[] = [];
  let mode: number | undefined;
  for (const [index, item] of service.takeList('secrets').entries()) {
    const path = [...service.path, 'secrets', index];
    if (!isMap(item)) {
      keys.push({ key: toText(item) ?? '' });
      continue;
    }
    const secret = new SourceMap(item, path, service.report);
    const key = secret.takeText('source') ?? '';
    const target = (secret.takeText('target') ?? key).replace(`${DIRECTORY}/`, '');
    mode = takeMode(secret) ?? mode;
    secret.finish({
      uid: 'the files belong to the user of the container',
      gid: 'use security.fsGroup',
    });
    if (target.includes('/'))
      secret.note('target', `left out: secrets of a container are files in ${DIRECTORY}`);
    else keys.push(target === key ? { key } : { key, file: target });
  }
  return keys.length === 0 ? [] : [withoutEmpty({ name, mountPath: DIRECTORY, mode, keys })];
}

function takeMode(secret: SourceMap): number | undefined {
  const value = secret.take('mode');
  if (value === undefined) return undefined;
  const text = toText(value) ?? '';
  // YAML reads 0440 as the number 440.
  const octal =
    typeof value === 'string' || /^4\d\d$/.test(text) ? Number.parseInt(text, 8) : value;
  if (typeof octal === 'number' && [0o400, 0o440, 0o444].includes(octal)) return octal;
  secret.note('mode', 'left out: files have the permissions 0400, 0440 or 0444');
  return undefined;
}
