module.exports = { preset: '../../jest.preset.js', displayName: 'rpc-client' };
