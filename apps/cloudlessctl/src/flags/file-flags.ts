import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { createUsageFailure } from '../call/failure.js';
import { OBJECT_NAME_RULE, isObjectName } from '../object-name.js';
import { isNone, parseText, type SpecFlag } from './flag-values.js';

/** Flags of the secrets and configs that the replicas use. */
export const FILE_FLAGS: readonly SpecFlag[] = [
  {
    flag: '--secret',
    value: 'name[:option]',
    description:
      'secret as files in /run/secrets/NAME; options, each after a colon: /PATH, env=VARIABLE, ' +
      'key=KEY[,file=NAME or ,env=VARIABLE], reload=restart, signal, none or SIGHUP, version=3, ' +
      'mode=0440, audience=TEXT; none removes all secrets',
    path: 'secrets',
    repeatable: true,
    parse: (texts) => parseReferences('--secret', texts),
  },
  {
    flag: '--config',
    value: 'name[:option]',
    description:
      'config as files in /run/configs/NAME, with the options of --secret except audience; ' +
      'none removes all configs',
    path: 'configs',
    repeatable: true,
    parse: (texts) => parseReferences('--config', texts),
  },
  {
    flag: '--image-pull-secret',
    value: 'secret-name',
    description: 'secret with the credentials of the registry of the image',
    path: 'image_pull.secret',
    parse: parseText,
  },
];

/**
 * Parses references in the form `NAME[:OPTION]…`. The value `none` sets an empty list.
 * @returns The references in protobuf JSON.
 * @throws {@link CliFailure} with exit code 2 that names the flag and the option.
 */
function parseReferences(flag: string, texts: readonly string[]): JsonValue {
  return isNone(texts) ? [] : texts.map((text) => parseReference(flag, text));
}

function parseReference(flag: string, text: string): JsonValue {
  const [name = '', ...options] = text.split(':');
  const noun = flag === '--secret' ? 'secret' : 'config';
  if (!isObjectName(name))
    throw createUsageFailure(
      `${flag}: ${JSON.stringify(name)} is not the name of a ${noun}: expected ${OBJECT_NAME_RULE}`,
    );
  const reference: JsonObject = { name };
  const keys: JsonValue[] = [];
  for (const option of options) {
    const [word = '', value] = splitPair(option);
    const parse = PARSERS[word];
    if (word.startsWith('/') && value === undefined)
      setOnce(flag, text, reference, 'mountPath', word);
    else if (word === 'key' && value !== undefined) keys.push(parseKey(flag, value));
    else if (
      parse !== undefined &&
      value !== undefined &&
      !(word === 'audience' && noun === 'config')
    )
      setOnce(flag, text, reference, word, parse(flag, value));
    else
      throw createUsageFailure(
        `${flag}: unknown option ${JSON.stringify(option)} of ${JSON.stringify(text)}; ` +
          'expected /PATH, env=VARIABLE, key=KEY, reload=signal, version=3' +
          (noun === 'secret' ? ', mode=0440 or audience=TEXT' : ' or mode=0444'),
      );
  }
  return { ...reference, ...(keys.length === 0 ? {} : { keys }) };
}

function setOnce(
  flag: string,
  text: string,
  reference: JsonObject,
  field: string,
  value: JsonValue,
): void {
  if (field in reference)
    throw createUsageFailure(
      `${flag}: ${JSON.stringify(text)} has two ${field === 'mountPath' ? 'paths' : `options ${field}=`}`,
    );
  reference[field] = value;
}

/** Parser of the value of each option, into the field of the same name. */
const PARSERS: Readonly<Record<string, (flag: string, value: string) => JsonValue>> = {
  env: (_flag, value) => value,
  audience: (_flag, value) => value,
  reload: parseReload,
  version: (flag, value) => {
    if (/^[1-9]\d{0,8}$/.test(value)) return Number(value);
    throw createUsageFailure(
      `${flag}: version= expects the number of a version, got ${JSON.stringify(value)}`,
    );
  },
  mode: (flag, value) => {
    if (/^0?4[04][04]$/.test(value) && value.slice(-2) !== '04') return Number.parseInt(value, 8);
    throw createUsageFailure(
      `${flag}: mode= expects 0400, 0440 or 0444, got ${JSON.stringify(value)}`,
    );
  },
};

/** Parses `restart`, `none`, `signal` (SIGHUP), or the name of a signal. */
function parseReload(flag: string, value: string): JsonValue {
  const word = value.toUpperCase();
  if (word === 'RESTART' || word === 'NONE' || word === 'SIGNAL') return { mode: word };
  if (/^SIG[A-Z0-9]+$/.test(word)) return { mode: 'SIGNAL', signal: word };
  throw createUsageFailure(
    `${flag}: reload= expects restart, none, signal or the name of a signal such as SIGHUP, ` +
      `got ${JSON.stringify(value)}`,
  );
}

/** Parses `KEY[,file=NAME][,env=VARIABLE]`. */
function parseKey(flag: string, text: string): JsonValue {
  const [key = '', ...attributes] = text.split(',');
  const json: JsonObject = { key };
  for (const attribute of attributes) {
    const [word = '', value = ''] = splitPair(attribute);
    if ((word !== 'file' && word !== 'env') || value === '')
      throw createUsageFailure(
        `${flag}: key= expects KEY, KEY,file=NAME or KEY,env=VARIABLE, got ${JSON.stringify(text)}`,
      );
    json[word] = value;
  }
  return json;
}

function splitPair(text: string): readonly [word: string, value?: string] {
  const equals = text.indexOf('=');
  return equals < 0 ? [text] : [text.slice(0, equals), text.slice(equals + 1)];
}
