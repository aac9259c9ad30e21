module.exports = { preset: '../../jest.preset.js', displayName: 'api-server' };
